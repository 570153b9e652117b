"""A seekable read-only file over ranged reads, for libraries that want one (parquet footers, zip directories)."""

from __future__ import annotations

import io

from caption_assets.core.objectstore import ObjectStore


class RangedFile(io.RawIOBase):
    """One object as a file: every read is one ranged request, so callers should read in large pieces."""

    def __init__(self, objects: ObjectStore, uri: str) -> None:
        self._objects, self._uri = objects, uri
        self._size = objects.head(uri).size
        self._position = 0

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
        if length == 0:
            return b""
        data = self._objects.read(self._uri, self._position, length)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()
