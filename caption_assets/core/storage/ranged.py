"""A seekable read-only file over ranged reads, for libraries that want one (parquet footers, zip directories)."""

from __future__ import annotations

import io
from collections import deque

from caption_assets.core.objectstore import ObjectStore

AHEAD = 4 << 20
TAIL = 1 << 20
KEPT = 4


class RangedFile(io.RawIOBase):
    """One object as a file. A small read asks for AHEAD bytes at once, and one near the end for the last TAIL bytes, where
    footers are; the KEPT last answers are kept, so neighbouring small reads cost one request. Larger reads pass unkept."""

    def __init__(self, objects: ObjectStore, uri: str) -> None:
        self._objects, self._uri = objects, uri
        self._size = objects.head(uri).size
        self._position = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._range(self._position, length) if length else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def _range(self, start: int, length: int) -> bytes:
        for at, data in self._kept:
            if at <= start and start + length <= at + len(data):
                return data[start - at : start - at + length]
        if length >= AHEAD:
            return self._objects.read(self._uri, start, length)
        first = min(start, max(0, self._size - TAIL))
        data = self._objects.read(self._uri, first, max(start + length, min(first + AHEAD, self._size)) - first)
        self._kept.append((first, data))
        return data[start - first : start - first + length]
