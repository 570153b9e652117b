"""Bytes of tar members: a tar that is read mostly whole is streamed once, single members come by range requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from caption_assets.core.faults import Fault
from caption_assets.core.objectstore import ObjectError, ObjectStore
from caption_assets.core.sources.decompression import BLOCK, BrokenStream, Stream, UnsupportedCompression
from caption_assets.core.sources.sniffing import compression_of

GAP = 1 << 20
"""Unwanted bytes between two members that are cheaper read than asked around."""
RUN = 6
"""So many members near one another are worth a stream."""
CONCURRENCY = 16

Place = tuple[int, int]
"""Offset and length, in the unpacked tar."""
Found = bytes | Fault | ObjectError


class Members:
    """The members of one tar, asked for in portions, best in order of their offsets. Close it at the end."""

    def __init__(self, objects: ObjectStore, uri: str) -> None:
        self._objects, self._uri = objects, uri
        self._packed: bool | None = None
        self._stream: BinaryIO | Stream | None = None
        self._at = 0
        self._left = b""

    def read(self, places: Sequence[Place]) -> Iterator[Found]:
        """What lies at each of `places`, in order."""
        try:
            if self._packed is None:
                self._packed = compression_of(self._objects.read(self._uri, 0, 8)) is not None
        except ObjectError as error:
            yield from (error for _ in places)
            return
        single: list[Place] = []
        for run in _runs(places):
            if self._packed or len(run) >= RUN or self._follows(run[0]):
                yield from self._ranges(single)
                single = []
                yield from (self._next(*place) for place in run)
            else:
                single += run
        yield from self._ranges(single)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._left = None, b""

    def _follows(self, place: Place) -> bool:
        return self._stream is not None and 0 <= place[0] - self._at <= GAP

    def _ranges(self, places: list[Place]) -> Iterator[Found]:
        found = self._objects.read_many(((self._uri, offset, length) for offset, length in places), CONCURRENCY)
        for (offset, length), data in zip(places, found, strict=True):
            yield data if isinstance(data, ObjectError) else self._whole(data, offset, length)

    def _next(self, offset: int, length: int) -> Found:
        """A member from the stream, which is opened anew where it does not lead there."""
        try:
            if self._stream is None or (offset < self._at if self._packed else not self._follows((offset, length))):
                self.close()
                # A packed tar can only be unpacked from its beginning.
                self._at = 0 if self._packed else offset
                raw = self._objects.open(self._uri, self._at)
                self._stream = Stream(raw) if self._packed else raw
            while self._at < offset and self._some(min(BLOCK, offset - self._at)):
                pass
            pieces, missing = [], length
            while missing and (data := self._some(missing)):
                pieces.append(data)
                missing -= len(data)
            return self._whole(pieces[0] if len(pieces) == 1 else b"".join(pieces), offset, length)
        except ObjectError as error:
            self.close()
            return error
        except (BrokenStream, UnsupportedCompression) as error:
            self.close()
            return Fault("truncated_shard", f"{self._uri}: {error}")

    def _some(self, most: int) -> bytes:
        """At most so many of the following bytes; none at the end."""
        assert self._stream is not None
        data = self._left or self._stream.read(BLOCK if self._packed else most)
        data, self._left = data[:most], data[most:]
        self._at += len(data)
        return data

    def _whole(self, data: bytes, offset: int, length: int) -> bytes | Fault:
        if len(data) == length:
            return data
        return Fault(
            "truncated_shard", f"{self._uri}: has {len(data)} of {length} bytes at {offset}; it was cut since it was indexed"
        )


def _runs(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Neighbours that lie in order, with small gaps."""
    run: list[Place] = []
    for place in places:
        if run and not 0 <= place[0] - sum(run[-1]) <= GAP:
            yield run
            run = []
        run.append(place)
    if run:
        yield run
