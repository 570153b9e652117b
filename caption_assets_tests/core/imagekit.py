"""What tests of pictures ask of them."""

from __future__ import annotations

import pytest

from caption_assets.config import ImagesConfig
from caption_assets.core.faults import PictureFault
from caption_assets.core.images import Decoded, decode
from caption_assets_tests.pictures import (
    GREY,
    RED,
)

LIMITS = ImagesConfig()


def reason(data: bytes, limits: ImagesConfig = LIMITS) -> str:
    with pytest.raises(PictureFault) as caught:
        decode(data, limits)
    return caught.value.fault.reason


def close(pixel: object, colour: tuple[int, int, int], by: int = 30) -> bool:
    assert isinstance(pixel, tuple)
    return max(abs(a - b) for a, b in zip(pixel, colour, strict=True)) <= by


def is_scene(decoded: Decoded, size: tuple[int, int] = (120, 80), by: int = 30) -> bool:
    image = decoded.image
    return (
        (decoded.width, decoded.height) == size
        and image.mode == "RGB"
        and close(image.getpixel((image.width // 4, image.height // 4)), RED, by)
        and all(
            close(image.getpixel((image.width * x // 4, image.height * y // 4)), GREY, by) for x, y in ((3, 1), (1, 3), (3, 3))
        )
    )
