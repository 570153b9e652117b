"""What an object store is: one listed object, the errors, and what every kind of store can do."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO, Protocol

STREAM_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object. `etag` changes when the bytes may have (disk: `{mtime_ns}-{size}`); mtime in seconds since 1970."""

    uri: str
    size: int
    etag: str
    mtime: float


def is_marker(info: ObjectInfo) -> bool:
    """Whether it only marks a folder in S3. Listings have it; whoever makes records of a listing counts it as ignored."""
    return info.size == 0 and info.uri.endswith("/")


class ObjectError(Exception):
    """An object could not be read or written. `reason` is one of core.columns.REASONS; str(error) says what happened where."""

    reason = "s3_error"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason:
            self.reason = reason


class ObjectMissing(ObjectError):
    """There is no such object, bucket, dataset or revision."""

    reason = "object_missing"


class NotAFile(ObjectError):
    """A folder or a device lies there, or the address can be none of a file."""

    reason = "not_a_file"


class Throttled(ObjectError):
    """The store refuses requests for now, and did so for as long as was waited."""

    reason = "throttled"


class ByteStream(io.RawIOBase):
    """What the streams of all stores have in common: `readall` in large blocks, since Python's own asks for 8 KB at a time."""

    def readable(self) -> bool:
        return True

    def readall(self) -> bytes:
        pieces = []
        while piece := self.read(STREAM_BLOCK):
            pieces.append(piece)
        return b"".join(pieces)


class MachineFault(OSError):
    """This machine's fault, not the object's: its disk is full, or it may not be written to. It stops the run."""

    def __str__(self) -> str:
        remedy = _REMEDIES.get(self.errno or 0, "")
        return f"{self.filename}: {self.strerror}{remedy and f': {remedy}'}"


_FULL = "make room there, or set store to another disk, and run again: what was stored is kept"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: "set store to where this user may write",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class Objects(Protocol):
    """What a kind of store can do. `uri` is always the whole address. Ranges past the end give the bytes there are."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """All objects whose address begins with `prefix`, in order of address; a local prefix is a folder."""
        ...

    def folders(self, prefix: str) -> Iterator[str]:
        """Names directly below `prefix`, which ends in /, that have objects below them, in order. What lies in them is not
        listed: a folder of 100,000 shards with 90 replies each is a hundred requests rather than 9,000."""
        ...

    def head(self, uri: str) -> ObjectInfo: ...
    def read(self, uri: str, offset: int = 0, length: int | None = None) -> bytes: ...
    def submit(self, uri: str, offset: int, length: int | None, stop: Event) -> Future[bytes]:
        """`read` in the background; the future raises what `read` would. `stop` ends its waiting for a busy store."""
        ...

    def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        """A sequential stream in one request, ending after `length` bytes; short bodies are noticed and resumed."""
        ...

    def put(self, uri: str, data: bytes) -> None: ...
    def put_file(self, uri: str, path: Path) -> None:
        """Publishes a finished local file (moved where possible)."""
        ...

    def put_new(self, uri: str, data: bytes) -> bool:
        """Write-once: False, and nothing changed, when the object exists."""
        ...

    def delete(self, uri: str) -> None:
        """No error when it is not there."""
        ...
