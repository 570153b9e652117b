"""Objects by address, wherever they lie: absolute local paths, `s3://bucket/key`, `hf://datasets/owner/name/path`.

Addresses are literal: nothing is decoded or encoded. Every write appears whole or not at all. Nothing else opens files of
sources and of the store.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from caption_assets.core.storage.localstore import LocalObjects
from caption_assets.core.storage.objects import MachineFault, NotAFile, ObjectError, ObjectInfo, ObjectMissing, Objects, Throttled

if TYPE_CHECKING:
    from caption_assets.config import S3Config

__all__ = ["NotAFile", "ObjectError", "ObjectInfo", "ObjectMissing", "ObjectStore", "Objects", "Throttled", "scratch_dir"]

AHEAD_BYTES = 256 << 20


class ObjectStore:
    """Every address the configuration allows, behind one object that dispatches by scheme. Thread-safe; cheap to make."""

    def __init__(self, s3: S3Config | None = None) -> None:
        self._config = s3
        self._local = LocalObjects()
        self._s3: Objects | None = None
        self._hf: Objects | None = None

    @property
    def s3(self) -> S3Config:
        """How S3 is reached. The config's models are imported when that is asked for: worker processes start without them."""
        if self._config is None:
            from caption_assets.config import S3Config

            self._config = S3Config()
        return self._config

    def of(self, uri: str) -> Objects:
        """The store that holds `uri`."""
        if uri.startswith("s3://"):
            if self._s3 is None:
                from caption_assets.core.storage.s3store import S3Objects

                self._s3 = S3Objects(self.s3)
            return self._s3
        if uri.startswith("hf://"):
            if self._hf is None:
                from caption_assets.core.storage.hfstore import HfObjects

                self._hf = HfObjects()
            return self._hf
        return self._local

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.of(prefix).list(prefix, start_after)

    def folders(self, prefix: str) -> Iterator[str]:
        return self.of(prefix).folders(prefix)

    def head(self, uri: str) -> ObjectInfo:
        return self.of(uri).head(uri)

    def exists(self, uri: str) -> bool:
        try:
            self.head(uri)
            return True
        except ObjectMissing:
            return False

    def read(self, uri: str, offset: int = 0, length: int | None = None) -> bytes:
        return self.of(uri).read(uri, offset, length)

    def read_many(self, items: Iterable[tuple[str, int, int | None]], concurrency: int = 16) -> Iterator[bytes | ObjectError]:
        """What `read` gives for each (uri, offset, length), in order; an unreadable one is its error, as a value.

        Up to `concurrency` reads are under way or read and waiting; `items` is drawn as far ahead, and not while more than
        AHEAD_BYTES wait. An error that is not an ObjectError is raised.
        """
        waiting: deque[Future[bytes]] = deque()
        source, more, stop, ahead = iter(items), True, threading.Event(), _Ahead()
        try:
            while more or waiting:
                while more and len(waiting) < concurrency and ahead.bytes < AHEAD_BYTES:
                    item = next(source, None)
                    if item is None:
                        more = False
                    else:
                        waiting.append(self.of(item[0]).submit(*item, stop))
                        waiting[-1].add_done_callback(ahead.arrived)
                if waiting:
                    try:
                        data = waiting.popleft().result()
                    except ObjectError as error:
                        yield error
                    else:
                        ahead.add(-len(data))
                        yield data
        finally:
            stop.set()
            for future in waiting:
                future.cancel()

    def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        return self.of(uri).open(uri, offset, length)

    def put(self, uri: str, data: bytes) -> None:
        self.of(uri).put(uri, data)

    def put_file(self, uri: str, path: Path) -> None:
        self.of(uri).put_file(uri, path)

    def put_new(self, uri: str, data: bytes) -> bool:
        return self.of(uri).put_new(uri, data)

    def delete(self, uri: str) -> None:
        self.of(uri).delete(uri)


def scratch_dir() -> str | None:
    """Where large temporary files go: $CAPTION_ASSETS_SCRATCH, else the system's folder."""
    folder = os.environ.get("CAPTION_ASSETS_SCRATCH") or None
    if folder and not os.path.isdir(folder):
        raise MachineFault(errno.ENOENT, "there is no such folder: make it, or change $CAPTION_ASSETS_SCRATCH", folder)
    return folder


class _Ahead:
    """How many bytes were read and wait to be taken."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.bytes += count

    def arrived(self, future: Future[bytes]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.add(len(future.result()))
