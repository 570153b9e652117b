"""Pictures from bytes."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image


@dataclass(frozen=True, slots=True)
class Decoded:
    """A whole picture: RGB and upright. width, height: of the upright original; `image` may be smaller (DCT scaling)."""

    image: Image.Image
    width: int
    height: int
    format: str
