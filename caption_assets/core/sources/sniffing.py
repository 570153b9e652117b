"""Formats told from the first bytes of a file, for files whose names say nothing."""

from __future__ import annotations

import zlib

import orjson
import zstandard

from caption_assets.core.formats import sniff

HEAD_BYTES = 4096
_UNSUPPORTED = (
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"]\0\0", "lzma"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"\x1f\x9d", "compress"),
)
_WEAK_PICTURES = frozenset(("bmp", "jxl"))


def compression_of(head: bytes) -> str | None:
    """gz, zst, the name of one that is not read here, or None for plain bytes."""
    if head.startswith(b"\x1f\x8b"):
        return "gz"
    if head[:4] == b"\x28\xb5\x2f\xfd" or (len(head) > 4 and head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
        return "zst"
    return next((name for magic, name in _UNSUPPORTED if head.startswith(magic)), None)


def sniff_kind(head: bytes) -> str | None:
    """webdataset, jsonl, parquet or images for the first HEAD_BYTES of a file; None for all else."""
    compression = compression_of(head)
    if compression in ("gz", "zst"):
        kind = sniff_kind(_decompressed(head, compression))
        return kind if kind in ("webdataset", "jsonl") else None
    if head.startswith(b"PAR1"):
        return "parquet"
    if is_tar_header(head[:512]):
        return "webdataset"
    if is_picture(head):
        return "images"
    return "jsonl" if _is_jsonl(head) else None


def is_picture(head: bytes) -> bool:
    """Whether bytes of no telling name are a picture; formats with a signature of two bytes do not count."""
    return sniff(head) not in (None, *_WEAK_PICTURES)


def is_tar_header(header: bytes) -> bool:
    """Whether 512 bytes are a tar header: their checksum is right."""
    if len(header) < 512 or not header[0]:
        return False
    try:
        stored = int(header[148:156].strip(b" \0") or b"-", 8)
    except ValueError:
        return False
    return stored == sum(header) - sum(header[148:156]) + 8 * 32


def _is_jsonl(head: bytes) -> bool:
    """Whether the first line is a JSON object by itself, or begins as one and is longer than what was read."""
    line, newline, _ = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n\t ").partition(b"\n")
    if not line.startswith(b"{"):
        return False
    if not newline and len(head) >= HEAD_BYTES:
        return line[1:].lstrip().startswith(b'"')
    try:
        return isinstance(orjson.loads(line), dict)
    except ValueError:
        return False


def _decompressed(head: bytes, compression: str) -> bytes:
    try:
        if compression == "gz":
            return zlib.decompressobj(31).decompress(head, HEAD_BYTES)
        return zstandard.ZstdDecompressor().decompressobj().decompress(head)[:HEAD_BYTES]
    except (zlib.error, zstandard.ZstdError):
        return b""
