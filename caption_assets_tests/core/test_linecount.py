"""Counting and cutting lines is exactly what reading them one by one would give."""

import gzip
import io
import random

import pytest

from caption_assets.core.plan import linecount
from caption_assets.core.plan.linecount import scan_lines
from caption_assets.core.sources.decompression import Stream
from caption_assets.core.sources.jsonl import lines


def slowly(data: bytes, every: int) -> tuple[int, list[int]]:
    """Lines and the starts of every `every`-th one, byte by byte."""
    starts = [0, *(n + 1 for n, byte in enumerate(data) if byte == 10 and n + 1 < len(data))] if data else []
    return len(starts), starts[every::every]


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\n\n", b"a", b"a\n", b"a\r\nb", b"\xef\xbb\xbfa\n\n \nb\n", "a\u2028b\n".encode(), b"a\rb\n"]
)
def test_small_ones(data: bytes) -> None:
    for every in (1, 2, 3):
        scan = scan_lines(Stream(io.BytesIO(data)), every)
        assert (scan.lines, scan.starts, scan.size) == (*slowly(data, every), len(data))
        assert len(list(lines(Stream(io.BytesIO(data))))) == scan.lines


def test_any_text_in_any_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    for size in (1, 7, 64, 5000):
        monkeypatch.setattr(linecount, "BUFFER", size)
        monkeypatch.setattr(linecount, "SLICE", max(1, size // 3))
        for _ in range(30):
            data = bytes(chance.choice(b"\n\n\nab\r ") for _ in range(chance.randrange(300)))
            every = chance.randrange(1, 9)
            for packed in (data, gzip.compress(data)):
                scan = scan_lines(Stream(io.BytesIO(packed)), every)
                assert (scan.lines, scan.starts) == slowly(data, every)
