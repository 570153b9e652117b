"""Pictures made by script: for tests, and photo-like ones for benchmarks."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

RED, GREY = (220, 20, 20), (235, 235, 235)


def save(image: Image.Image, format: str, **options: Any) -> bytes:
    sink = io.BytesIO()
    image.save(sink, format, **options)
    return sink.getvalue()


def scene(width: int = 120, height: int = 80) -> Image.Image:
    """Light grey with its top left quarter red: any turn, flip or swapped channel shows."""
    image = Image.new("RGB", (width, height), GREY)
    image.paste(RED, (0, 0, width // 2, height // 2))
    return image


def noise(seed: int, width: int = 64, height: int = 48) -> Image.Image:
    """A picture that differs for each seed and does not compress to nothing."""
    small = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def photo(seed: int, width: int = 1600, height: int = 1200) -> bytes:
    """A JPEG of quality 90 with detail of every size as in photos and a little sensor noise: about 0.22 bytes a pixel."""
    random = np.random.default_rng(seed)
    picture = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((6, 90), (20, 50), (80, 28), (300, 12)):
        field = random.standard_normal((max(2, height * cells // width), cells, 3)).astype(np.float32)
        field = 0.7 * field.mean(2, keepdims=True) + 0.3 * field
        for channel in range(3):
            layer = Image.fromarray(np.ascontiguousarray(field[..., channel]))
            picture[..., channel] += strength * np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC))
    picture += 3 * random.standard_normal((height, width, 1))
    return save(Image.fromarray(np.clip(picture + 120, 0, 255).astype(np.uint8)), "JPEG", quality=90)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def with_chunks(png: bytes, *chunks: bytes, at_end: bool = False) -> bytes:
    """A PNG with further chunks after its header, or before its end."""
    at = len(png) - 12 if at_end else 33
    return png[:at] + b"".join(chunks) + png[at:]


def empty_png(width: int, height: int, bits: int = 1) -> bytes:
    """A black PNG of any size, a thousandth of its pixels in bytes."""
    packer, row = zlib.compressobj(1), bytes(1 + (width * bits + 7) // 8)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def oriented(image: Image.Image, orientation: int) -> Image.Image:
    """The pixels a camera stores when `image` is what a viewer shall see."""
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}
    return image.transpose(Image.Transpose(undo[orientation])) if orientation in undo else image


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def grey_jpeg(width: int, height: int, sampling: tuple[int, int, int]) -> bytes:
    """A grey JPEG with any subsampling (0xHV per component), most of which no encoder at hand writes."""
    tables = save(Image.new("L", (8, 8)), "jpeg")
    at = tables.index(b"\xff\xc0")
    wide, high = (8 * max(s >> 4 for s in sampling)), (8 * max(s & 15 for s in sampling))
    blocks = -(-width // wide) * -(-height // high) * sum((s >> 4) * (s & 15) for s in sampling)
    # A grey block is the code of "no change", 00, and that of "no detail", 1010.
    bits = "001010" * blocks
    bits += "1" * (-len(bits) % 8)
    frame = (
        b"\xff\xc0"
        + struct.pack(">HBHHB", 17, 8, height, width, 3)
        + b"".join(bytes((n, s, 0)) for n, s in enumerate(sampling, 1))
    )
    scan = b"\xff\xda" + struct.pack(">HB", 12, 3) + bytes((1, 0, 2, 0, 3, 0, 0, 63, 0))
    huffman = tables[tables.index(b"\xff\xc4") : tables.index(b"\xff\xda")]
    return tables[:at] + frame + huffman + scan + int(bits, 2).to_bytes(len(bits) // 8, "big") + b"\xff\xd9"
