"""Where a catalog's parts begin: lines counted and cut at every so many of them, at the speed of memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caption_assets.core.sources.decompression import BrokenStream, Stream

BLOCK = 256 << 10
_LF = 10


@dataclass(frozen=True)
class LineScan:
    """lines: as the reader counts them: each ends at an LF or at the end; blank ones count, U+2028 and CR end none.
    starts: byte in the (unpacked) catalog where every `every`-th line begins, the first one (0) left out. size: its bytes."""

    lines: int
    starts: list[int]
    size: int


def scan_lines(stream: Stream, every: int) -> LineScan:
    """Reads a catalog once. What a broken packed stream holds behind its last LF is no line."""
    lines, at, following, starts, last = 0, 0, every, [], _LF
    try:
        while block := stream.read(BLOCK):
            ends = np.frombuffer(block, np.uint8) == _LF
            found = int(np.count_nonzero(ends))
            if lines + found >= following:
                places = np.flatnonzero(ends)[following - lines - 1 :: every] + (at + 1)
                starts.extend(places.tolist())
                following += every * len(places)
            lines += found
            at += len(block)
            last = block[-1]
    except BrokenStream:
        last = _LF
    if starts and starts[-1] == at:
        starts.pop()
    return LineScan(lines + (last != _LF), starts, at)
