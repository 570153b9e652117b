"""What picture formats say of themselves before anything is decoded: which one it is, how large, which way up.

Told from the bytes alone, never from a file's name. All of it reads what strangers wrote: lengths are checked.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_READ = (
    (b"\xff\xd8\xff", "jpeg"),
    (PNG_SIGNATURE, "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (b"MM\0+", "tiff"),
    (b"\xff\x0a", "jxl"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
)
_BMP_HEADERS = {size.to_bytes(4, "little") for size in (12, 16, 40, 52, 56, 64, 108, 124)}
_OTHERS = (
    (b"8BPS", "a Photoshop document"),
    (b"\0\0\x01\0", "an icon"),
    (b"\0\0\x02\0", "a cursor"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"%!PS", "PostScript"),
    (b"DDS ", "DDS"),
    (b"\x76\x2f\x31\x01", "OpenEXR"),
    (b"#?RADIANCE", "Radiance HDR"),
    (b"qoif", "QOI"),
    (b"gimp xcf", "a GIMP document"),
    (b"icns", "an icon"),
    (b"FUJIFILMCCD-RAW", "a raw photo"),
    (b"II\xbc", "JPEG XR"),
    *((b"P%d%c" % (number, space), "a Netpbm picture") for number in range(1, 8) for space in b"\n\r\t "),
)


def sniff(data: bytes) -> str | None:
    """The format, if it is one that can be read (given its library): jpeg, png, webp, gif, bmp, tiff, avif, heic or jxl."""
    for magic, name in _READ:
        if data.startswith(magic):
            return name
    if data[:2] == b"BM" and data[14:18] in _BMP_HEADERS:
        return "bmp"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp":
        end = min(int.from_bytes(data[:4], "big"), 256)
        brands = {data[8:12], *(data[at : at + 4] for at in range(16, end, 4))}
        if brands & {b"avif", b"avis"}:
            return "avif"
        if brands & {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}:
            return "heic"
    return None


def other_format(data: bytes) -> str | None:
    """In words, the picture format that this is but that is not read here; None when it is no picture that is known."""
    return next((name for magic, name in _OTHERS if data.startswith(magic)), None)


@dataclass
class JpegHeader:
    """exif: the bytes after `Exif\\0\\0`, or None; inverted: an Adobe file, whose four channels are stored inverted."""

    width: int = 0
    height: int = 0
    channels: int = 0
    progressive: bool = False
    exif: bytes | None = None
    inverted: bool = False


def jpeg_header(data: bytes) -> JpegHeader:
    """Reads the segments before the picture data. Junk in or between them does no harm. ValueError: no picture data follows."""
    header, at = JpegHeader(), 2
    while (at := data.find(b"\xff", at)) >= 0 and at + 4 <= len(data):
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker < 0x02 or 0xD0 <= marker <= 0xD8:
            at += 2
        elif marker == 0xDA and header.channels:
            return header
        elif marker in (0xD9, 0xDA):
            break
        else:
            length = int.from_bytes(data[at + 2 : at + 4], "big")
            _jpeg_segment(header, marker, data[at + 4 : at + 2 + length])
            at += 2 + max(length, 2)
    raise ValueError("it ends before its picture data")


def _jpeg_segment(header: JpegHeader, marker: int, body: bytes) -> None:
    if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
        if len(body) < 6:
            raise ValueError("its frame header is cut short")
        header.height, header.width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
        header.channels, header.progressive = body[5], marker in (0xC2, 0xC6, 0xCA, 0xCE)
    elif marker == 0xE1 and body.startswith(b"Exif\0\0") and header.exif is None:
        header.exif = body[6:]
    elif marker == 0xEE and body.startswith(b"Adobe"):
        header.inverted = True


def png_chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """The chunks of a PNG up to and with IEND: (type, the whole chunk). ValueError: the file ends before."""
    view, at = memoryview(data), len(PNG_SIGNATURE)
    while True:
        end = at + 12 + int.from_bytes(view[at : at + 4], "big")
        if end > len(data):
            raise ValueError("it ends before its last chunk")
        kind = bytes(view[at + 4 : at + 8])
        yield kind, view[at:end]
        if kind == b"IEND":
            return
        at = end


def png_essentials(data: bytes) -> bytes:
    """The same PNG with nothing but its (first) picture and orientation, checksums verified: no texts, profiles or further
    frames, which may be junk or unpack to gigabytes. ValueError: the file is cut short or damaged."""
    kept: list[bytes | memoryview] = [PNG_SIGNATURE]
    for kind, chunk in png_chunks(data):
        if kind in (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"eXIf"):
            if zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
                if kind == b"eXIf":
                    continue
                raise ValueError(f"the checksum of a chunk {kind.decode()} is wrong")
            kept.append(chunk)
    return b"".join(kept)


def png_texts_follow(data: bytes) -> bool:
    """Whether packed texts stand after the picture data: other readers meet them last, and refuse the file if they are long."""
    seen = False
    for kind, _ in png_chunks(data):
        if seen and kind in (b"zTXt", b"iTXt"):
            return True
        seen = seen or kind == b"IDAT"
    return False


def jxl_size(data: bytes) -> tuple[int, int]:
    """Width and height as stored in a JPEG XL file, before its orientation. ValueError: it is cut short or damaged."""
    bits = _Bits(_jxl_codestream(data)[2:34])
    small = bits.take(1)
    height = _jxl_side(bits, small)
    ratio = bits.take(3)
    if not ratio:
        return _jxl_side(bits, small), height
    over, under = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))[ratio - 1]
    return height * over // under, height


def _jxl_side(bits: _Bits, small: int) -> int:
    return (bits.take(5) + 1) * 8 if small else bits.take((9, 13, 18, 30)[bits.take(2)]) + 1


def _jxl_codestream(data: bytes) -> bytes:
    """The beginning of the picture data, bare or in its box."""
    if data[:2] == b"\xff\x0a":
        return data[:64]
    at = 0
    while at + 16 <= len(data):
        size, kind, head = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8], 8
        if size == 1:
            size, head = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        if kind in (b"jxlc", b"jxlp"):
            head += 4 if kind == b"jxlp" else 0
            return data[at + head : at + head + 64]
        if size < head:
            break
        at += size
    raise ValueError("it holds no picture data")


class _Bits:
    """Little-endian bits of a few bytes."""

    def __init__(self, data: bytes) -> None:
        self._value, self._left = int.from_bytes(data, "little"), 8 * len(data)

    def take(self, count: int) -> int:
        if count > self._left:
            raise ValueError("it ends within its header")
        taken = self._value & ((1 << count) - 1)
        self._value, self._left = self._value >> count, self._left - count
        return taken
