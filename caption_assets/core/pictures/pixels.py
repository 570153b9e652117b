"""Pixels that are there already: to RGB, to a size, to a file."""

from __future__ import annotations

import io
import math
from typing import Any

from PIL import Image

from caption_assets.core.faults import PictureFault


def fitted(width: int, height: int, side: int) -> tuple[int, int]:
    """The size with this aspect whose longer side is `side`; no side becomes 0."""
    longest = max(width, height)
    return max(1, round(width * side / longest)), max(1, round(height * side / longest))


def scaled(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The RGB picture in exactly this size."""
    if image.size == size:
        return image
    # Hamming reduces about as well as Lanczos for less than half of the time; it is not made for enlarging.
    enlarges = size[0] * size[1] > image.width * image.height
    return image.resize(size, Image.Resampling.BICUBIC if enlarges else Image.Resampling.HAMMING, reducing_gap=3.0)


def encode(image: Image.Image, format: str, quality: int) -> bytes:
    """An RGB picture as webp, jpeg or png."""
    options: dict[str, Any] = {
        # Effort 2 makes files about as small as Pillow's usual 4 in half of the time; less effort makes them larger.
        "webp": {"quality": quality, "method": 2},
        "jpeg": {"quality": quality},
        "png": {"compress_level": 3},
    }
    sink = io.BytesIO()
    image.save(sink, format, **options[format])
    return sink.getvalue()


def to_rgb(picture: Image.Image, factor: int) -> Image.Image:
    """A decoded picture of any mode as RGB on white, reduced by a whole factor. PictureFault: a mode that has no such meaning.

    Done in strips, so that a large picture is never held three times.
    """
    if picture.mode == "RGB" and factor == 1 and "transparency" not in picture.info:
        return picture
    grey = _grey_range(picture)
    whole = Image.new("RGB", (math.ceil(picture.width / factor), math.ceil(picture.height / factor)))
    rows = factor * max(1, 4_000_000 // (picture.width * factor))
    for top in range(0, picture.height, rows):
        strip = picture.crop((0, top, picture.width, min(top + rows, picture.height)))
        flat = _strip_rgb(strip, grey)
        whole.paste(flat.reduce(factor) if factor > 1 else flat, (0, top // factor))
    return whole


def _grey_range(picture: Image.Image) -> tuple[float, float]:
    """The values that become black and white, for greys of more than 8 bits."""
    if picture.mode.startswith("I;16"):
        return 0, 65535
    if picture.mode in ("I", "F"):
        low, high = picture.getextrema()
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and math.isfinite(low) and math.isfinite(high):
            return low, high
        raise PictureFault("decode_error", "its pixels are not all finite numbers")
    return 0, 255


def _strip_rgb(strip: Image.Image, grey: tuple[float, float]) -> Image.Image:
    if strip.mode in ("I", "F") or strip.mode.startswith("I;16"):
        low, high = grey
        scale = 255 / (high - low) if high > low else 1.0
        wide = strip.convert("F") if strip.mode in ("I", "F") else strip.convert("I").convert("F")
        return wide.point(lambda value: value * scale + (-low * scale)).convert("L").convert("RGB")
    if strip.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in strip.info:
        if strip.mode == "La":
            strip = strip.convert("LA")
        clear = strip if strip.mode == "RGBA" else strip.convert("RGBA")
        ground = Image.new("RGBA", clear.size, (255, 255, 255, 255))
        return Image.alpha_composite(ground, clear).convert("RGB")
    if strip.mode not in ("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV"):
        raise PictureFault("unsupported_format", f"the colour space {strip.mode} is not read here")
    return strip.convert("RGB")
