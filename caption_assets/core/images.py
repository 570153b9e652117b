"""Pictures from bytes that may lie: decoded whole, upright and RGB, or refused with a reason.

What is done to a picture before a model sees it, and nothing else: the first frame or page is taken; transparency is laid on
white; 16 bits a channel are shortened to 8, 32-bit and floating-point greys are stretched from their darkest to their brightest
value; the file's orientation is applied; colour profiles are not. A file that ends early is `decode_error`, also one that lacks
nothing but its end marker, since endpoints refuse it too. So is a JPEG that is whole by its length but has pixels missing or
damaged inside (other readers fill them with grey and say nothing).

Sizes are checked before pixels are decoded, and all threads together decode at most about `BUDGET_PIXELS` at a time.
"""

from __future__ import annotations

import importlib
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import simplejpeg
from PIL import Image, ImageFile

from caption_assets.config import ImagesConfig
from caption_assets.core import formats
from caption_assets.core.faults import PictureFault
from caption_assets.core.pictures.pixels import encode, fitted, scaled, to_rgb

MEDIA_TYPES = {"webp": "image/webp", "jpeg": "image/jpeg", "png": "image/png"}
MAX_ASPECT = 200
"""Longer strips are bad_dimensions: models refuse them (Qwen's at just this ratio), and scaled down they vanish."""
BUDGET_PIXELS = 128_000_000
_PLUGINS = {
    "jpeg": ("PIL.JpegImagePlugin", "JpegImageFile", ""),
    "png": ("PIL.PngImagePlugin", "PngImageFile", ""),
    "webp": ("PIL.WebPImagePlugin", "WebPImageFile", ""),
    "gif": ("PIL.GifImagePlugin", "GifImageFile", ""),
    "bmp": ("PIL.BmpImagePlugin", "BmpImageFile", ""),
    "tiff": ("PIL.TiffImagePlugin", "TiffImageFile", ""),
    "avif": ("PIL.AvifImagePlugin", "AvifImageFile", "a newer Pillow"),
    "heic": ("pillow_heif.as_plugin", "HeifImageFile", "caption-assets[heic]"),
    "jxl": ("pillow_jxl.JpegXLImagePlugin", "JXLImageFile", "caption-assets[jxl]"),
}
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""EXIF orientation -> Image.Transpose that undoes it."""
_DAMAGE = re.compile(r"remature end|bad (Huffman|arithmetic) code|instead of RST|before marker 0xd[0-7]")
"""libjpeg's warnings that mean missing or wrong pixels; its others (stray bytes, odd markers) are harmless."""
_MAX_SCANS = 500


@dataclass(frozen=True, slots=True)
class Decoded:
    """A whole picture: RGB and upright. width, height: of the upright original; `image` may be smaller (at_least)."""

    image: Image.Image
    width: int
    height: int
    format: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is sent for a single picture. width, height: as sent; format: jpeg, png or webp, that of `data`."""

    data: bytes
    media_type: str
    width: int
    height: int
    format: str


def decode(data: bytes, limits: ImagesConfig, at_least: int | None = None) -> Decoded:
    """Decodes the whole picture. Raises PictureFault, whatever the bytes are.

    at_least: the longest side wanted in pixels; a larger picture may come reduced to no less than that, which is cheaper in time
    and memory (every byte is decoded all the same).
    """
    format = _format(data, limits)
    with _faults(format):
        return _decode_jpeg(data, limits, at_least) if format == "jpeg" else _decode_other(format, data, limits, at_least)


def prepare_single(data: bytes, limits: ImagesConfig) -> Prepared:
    """The picture as it is sent by itself: its own bytes where it is an upright RGB JPEG, PNG or WebP of one frame that fits
    longest_side; else scaled down and encoded as JPEG. Raises PictureFault.

    Own bytes are not decoded again: the caller knows by their sha256 that `decode` has read them.
    """
    format = _format(data, limits)
    if format in MEDIA_TYPES and (size := _size_as_is(format, data, limits)):
        return Prepared(data, MEDIA_TYPES[format], *size, format)
    decoded = decode(data, limits, limits.longest_side)
    image = _within(decoded, limits.longest_side)
    return Prepared(encode(image, "jpeg", 90), MEDIA_TYPES["jpeg"], image.width, image.height, "jpeg")


def thumbnail(data: bytes, limits: ImagesConfig, side: int) -> bytes:
    """A small JPEG whose longer side is at most `side` pixels. Raises PictureFault."""
    return encode(_within(decode(data, limits, side), side), "jpeg", 80)


def _within(decoded: Decoded, side: int) -> Image.Image:
    return scaled(decoded.image, fitted(decoded.width, decoded.height, min(side, max(decoded.width, decoded.height))))


def _format(data: bytes, limits: ImagesConfig) -> str:
    if not data:
        raise PictureFault("empty_file", "it has no bytes")
    if len(data) > limits.max_bytes:
        raise PictureFault("too_many_pixels", f"a file of {len(data)} bytes; images.max_bytes allows {limits.max_bytes}")
    format = formats.sniff(data)
    if format is None and (other := formats.other_format(data)):
        raise PictureFault("unsupported_format", f"{other} is not read here")
    if format is None:
        raise PictureFault("not_an_image", f"it begins with {data[:24]!r}")
    return format


def _size_as_is(format: str, data: bytes, limits: ImagesConfig) -> tuple[int, int] | None:
    """The picture's size if its bytes can be sent as they are, judged by the reader that endpoints use too; else None."""
    try:
        picture = _plugin(format)(io.BytesIO(data))
        plain = picture.mode == "RGB" and "transparency" not in picture.info and not getattr(picture, "is_animated", False)
        if not plain or picture.getexif().get(0x0112) in _TURNS or (format == "png" and formats.png_texts_follow(data)):
            return None
    except Exception:
        return None
    _check_size(*picture.size, limits)
    return picture.size if max(picture.size) <= limits.longest_side else None


@contextmanager
def _faults(format: str) -> Iterator[None]:
    """Whatever a decoder throws becomes a reason; interrupts and real lack of memory pass."""
    try:
        yield
    except PictureFault:
        raise
    except Image.DecompressionBombError as error:
        raise PictureFault("too_many_pixels", f"{format}: {error}") from error
    except MemoryError:
        # Decoders ask for absurd amounts when a file lies, and every picture would get this much:
        bytearray(4 * BUDGET_PIXELS)
        raise PictureFault("decode_error", f"{format}: the decoder wants more memory than any such picture needs") from None
    except BaseException as error:
        # A panic of a decoder in Rust is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise PictureFault("decode_error", f"{format}: {str(error) or type(error).__name__}") from error


def _check_size(width: int, height: int, limits: ImagesConfig) -> None:
    if width * height > limits.max_pixels:
        raise PictureFault("too_many_pixels", f"{width}x{height}; images.max_pixels allows {limits.max_pixels}")
    if min(width, height) < 2 or max(width, height) > MAX_ASPECT * min(width, height):
        raise PictureFault(
            "bad_dimensions", f"{width}x{height}: a side of one pixel, or longer than {MAX_ASPECT} times the other"
        )


def _decode_jpeg(data: bytes, limits: ImagesConfig, at_least: int | None) -> Decoded:
    header = formats.jpeg_header(data)
    _check_size(header.width, header.height, limits)
    if header.progressive and data.count(b"\xff\xda") > _MAX_SCANS + len(data) // 16384:
        raise PictureFault("decode_error", "jpeg: it paints itself over and over: too many scans")
    options: dict[str, Any] = {"colorspace": "CMYK" if header.channels == 4 else "RGB"}
    pixels = header.width * header.height
    if at_least:
        side = "min_width" if header.width >= header.height else "min_height"
        options |= {side: at_least, "min_factor": 2}
        if not header.progressive:
            pixels //= max(1, min(8, max(header.width, header.height) // at_least)) ** 2
    with _budget.of(pixels):
        try:
            try:
                array = simplejpeg.decode_jpeg(data, **options)
            except ValueError as error:
                if _DAMAGE.search(str(error)):
                    raise
                array = simplejpeg.decode_jpeg(data, **options, strict=False)
        except ValueError as error:
            if "subsampling" in str(error):
                return _decode_other("jpeg", data, limits, at_least)
            raise
        size = (array.shape[1], array.shape[0])
        if header.channels == 4:
            image = Image.frombuffer("CMYK", size, array, "raw", "CMYK;I" if header.inverted else "CMYK", 0, 1).convert("RGB")
        else:
            image = Image.frombuffer("RGB", size, array, "raw", "RGB", 0, 1)
        return _upright(image, _orientation(header.exif), header.width, header.height, "jpeg")


def _decode_other(format: str, data: bytes, limits: ImagesConfig, at_least: int | None) -> Decoded:
    if format == "jxl":
        _check_size(*formats.jxl_size(data), limits)
    picture = _plugin(format)(io.BytesIO(formats.png_essentials(data) if format == "png" else data))
    width, height = picture.size
    _check_size(width, height, limits)
    with _budget.of(width * height):
        picture.load()
        if picture.size != (width, height):
            _check_size(*picture.size, limits)
            width, height = picture.size
        image = to_rgb(picture, max(1, max(width, height) // (3 * at_least)) if at_least else 1)
        # TIFF and HEIC are turned by their readers, JPEG XL by its own means.
        exif = picture.info.get("exif") if format in ("jpeg", "png", "webp", "avif") else None
        return _upright(image, _orientation(exif), width, height, format)


@cache
def _plugin(format: str) -> type[ImageFile.ImageFile]:
    """Pillow's reader of one format, without its guessing among all it knows and without its process-wide pixel limit."""
    module, name, install = _PLUGINS[format]
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        raise PictureFault("unsupported_format", f"{format} needs a library: install {install}") from None


def _orientation(exif: bytes | None) -> int:
    """The EXIF orientation, 1 where there is none or it is junk."""
    if not exif:
        return 1
    tags = Image.Exif()
    try:
        tags.load(exif)
        value = tags.get(0x0112, 1)
    except Exception:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _upright(image: Image.Image, orientation: int, width: int, height: int, format: str) -> Decoded:
    if orientation in _TURNS:
        image = image.transpose(Image.Transpose(_TURNS[orientation]))
    if orientation >= 5:
        width, height = height, width
    return Decoded(image, width, height, format)


class _Budget:
    """A number of pixels that all threads share; who asks for more than there is gets it alone."""

    def __init__(self, pixels: int) -> None:
        self._all = self._free = pixels
        self._changed = threading.Condition()

    @contextmanager
    def of(self, pixels: int) -> Iterator[None]:
        share = min(pixels, self._all)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= share)
            self._free -= share
        try:
            yield
        finally:
            with self._changed:
                self._free += share
                self._changed.notify_all()


_budget = _Budget(BUDGET_PIXELS)
