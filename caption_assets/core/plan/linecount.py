"""Where a catalog's parts begin: lines counted and cut at every so many of them, at the speed of memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caption_assets.core.sources.decompression import BrokenStream, Stream

BUFFER = 4 << 20
SLICE = 128 << 10
"""Counted at once: it and its mask stay in the processor's cache."""
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
    buffer, mask = np.empty(BUFFER, np.uint8), np.empty(SLICE, bool)
    view = buffer.data
    try:
        while size := stream.readinto(view):
            for begin in range(0, size, SLICE):
                part = buffer[begin : min(begin + SLICE, size)]
                ends = np.equal(part, _LF, out=mask[: len(part)])
                found = int(np.count_nonzero(ends))
                if lines + found >= following:
                    places = np.flatnonzero(ends)[following - lines - 1 :: every] + (at + 1)
                    starts.extend(places.tolist())
                    following += every * len(places)
                lines += found
                at += len(part)
            last = int(buffer[size - 1])
    except BrokenStream:
        last = _LF
    lines += last != _LF
    if starts and lines <= every * len(starts):
        starts.pop()
    return LineScan(lines, starts, at)
