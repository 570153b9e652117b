"""gzip and zstd as streams. What could be unpacked before a fault is handed out before the fault is raised."""

from __future__ import annotations

import zlib
from types import TracebackType
from typing import Any, BinaryIO

import zstandard

from caption_assets.core.sources.sniffing import compression_of

BLOCK = 1 << 20
_OUT = 4 << 20
_ZSTD_IN = 1 << 12
"""zstd unpacks all it is given at once: little is given, so that no bomb fills the memory (4 bytes may unpack to 128 KB)."""


class UnsupportedCompression(Exception):
    """The file is packed in a way that is not read here; str() is its name."""


class BrokenStream(Exception):
    """A packed file is damaged, or ends before its end."""


class Stream:
    """An object's bytes, unpacked where they are packed, for reading from the beginning to the end.

    Raises UnsupportedCompression when opened, BrokenStream while reading. sniff: False for a part of a plain file.
    """

    def __init__(self, raw: BinaryIO, sniff: bool = True) -> None:
        self._raw = raw
        self._some = getattr(raw, "read1", raw.read)  # no more than asked for: after a jump in a tar only a header is wanted
        self._input, self._at, self._left = b"", 0, b""
        self._fill(8 if sniff else 0)
        self.compression = compression_of(self._input)
        if self.compression not in (None, "gz", "zst"):
            raw.close()
            raise UnsupportedCompression(self.compression)
        self._engine: Any = None
        self._finished = False

    @property
    def plain(self) -> bool:
        return self.compression is None

    def read(self, size: int = BLOCK) -> bytes:
        """Some bytes, about `size`; none at the end."""
        if self.plain:
            head, self._input = self._input, b""
            return head or self._some(size)
        while True:
            if self._at >= len(self._input):
                self._input, self._at = self._raw.read(BLOCK), 0
            if not self._input:
                if self._engine is not None and not self._finished:
                    raise BrokenStream(f"the {self.compression} data ends before its end")
                return b""
            if data := self._unpack():
                return data

    def readinto(self, buffer: memoryview) -> int:
        """Like read, into memory that is there already, which saves a plain stream half of the time. 0 at the end."""
        readinto = getattr(self._raw, "readinto", None)
        if self.plain and not self._input and not self._left and readinto is not None:
            return readinto(buffer) or 0
        data = self._left or self.read(len(buffer))
        count = min(len(data), len(buffer))
        buffer[:count], self._left = data[:count], data[count:]
        return count

    @property
    def can_skip(self) -> bool:
        return self.plain and self._raw.seekable()

    def skip_to(self, position: int) -> None:
        """Goes to a byte of a plain stream without reading what lies between; only where can_skip."""
        self._input = b""
        self._raw.seek(position)

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _fill(self, size: int) -> None:
        """Makes at least `size` bytes of input wait, where there are that many."""
        self._input, self._at = self._input[self._at :], 0
        while len(self._input) < size and (more := self._raw.read(size - len(self._input))):
            self._input += more

    def _unpack(self) -> bytes:
        """Unpacks a piece of the input. Members that follow one another are one stream; what follows the last one is padding."""
        if self._engine is None or self._finished:
            self._fill(8)
            if self._engine is not None and compression_of(self._input) != self.compression:
                self._at = len(self._input)
                return b""
            self._engine = zlib.decompressobj(31) if self.compression == "gz" else zstandard.ZstdDecompressor().decompressobj()
        engine = self._engine
        try:
            if self.compression == "gz":
                data = engine.decompress(self._input[self._at :] if self._at else self._input, _OUT)
                self._input, self._at = engine.unused_data or engine.unconsumed_tail, 0
            else:
                piece = self._input[self._at : self._at + _ZSTD_IN]
                data = engine.decompress(piece)
                self._at += len(piece) - len(engine.unused_data)
        except (zlib.error, zstandard.ZstdError) as error:
            raise BrokenStream(f"the {self.compression} data is damaged: {error}") from None
        self._finished = bool(engine.eof)
        return bytes(data)
