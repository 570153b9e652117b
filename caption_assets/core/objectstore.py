"""Objects by address, wherever they lie: local paths here, `s3://bucket/key` through `core.s3store`.

Addresses are literal: nothing is decoded or encoded. A local address is an absolute path. Every write appears whole or not at
all. This module is the only one that opens files of sources and of the store.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from caption_assets.config import S3Config

READ_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object. `etag` changes when the bytes may have (disk: `{mtime_ns}-{size}`); mtime in seconds since 1970."""

    uri: str
    size: int
    etag: str
    mtime: float


class ObjectError(Exception):
    """An object could not be read or written. `reason` is one of core.columns.REASONS; str(error) says what happened where."""

    reason = "s3_error"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason:
            self.reason = reason


class ObjectMissing(ObjectError):
    reason = "object_missing"


class NotAFile(ObjectError):
    reason = "not_a_file"


class Throttled(ObjectError):
    reason = "throttled"


class Objects(Protocol):
    """What a kind of store can do. `uri` is always the whole address."""

    conditional_puts: bool

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """All objects whose address begins with `prefix`, in order of address; a local prefix is a folder."""
        ...

    def head(self, uri: str) -> ObjectInfo: ...
    def read(self, uri: str, offset: int = 0, length: int | None = None) -> bytes: ...
    def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        """A sequential stream in one request; short bodies are noticed and resumed."""
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


class LocalObjects:
    """Files below absolute paths."""

    conditional_puts = True

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        yield from _walk(prefix.rstrip("/") or "/", start_after)

    def head(self, uri: str) -> ObjectInfo:
        with _local_errors(uri):
            stat = os.stat(uri)
            if os.path.isdir(uri):
                raise NotAFile(f"{uri}: is a folder")
            return ObjectInfo(uri, stat.st_size, f"{stat.st_mtime_ns}-{stat.st_size}", stat.st_mtime)

    def read(self, uri: str, offset: int = 0, length: int | None = None) -> bytes:
        with self.open(uri, offset, length) as file, _local_errors(uri):
            return file.read() if length is None else file.read(length)

    def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        with _local_errors(uri):
            if os.path.exists(uri) and not os.path.isfile(uri):
                raise NotAFile(f"{uri}: is not a file")
            file = open(uri, "rb", buffering=READ_BLOCK)
            file.seek(offset)
            return file

    def put(self, uri: str, data: bytes) -> None:
        with _local_errors(uri), _temporary(uri) as temporary:
            _write(temporary, data)
            os.replace(temporary, uri)
            _sync_folder(uri)

    def put_file(self, uri: str, path: Path) -> None:
        with _local_errors(uri), _temporary(uri) as temporary:
            try:
                os.replace(path, temporary)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                import shutil

                shutil.copyfile(path, temporary)
                os.unlink(path)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, uri)
            _sync_folder(uri)

    def put_new(self, uri: str, data: bytes) -> bool:
        with _local_errors(uri), _temporary(uri) as temporary:
            _write(temporary, data)
            try:
                os.link(temporary, uri)
            except FileExistsError:
                return False
            _sync_folder(uri)
            return True

    def delete(self, uri: str) -> None:
        with _local_errors(uri):
            try:
                os.unlink(uri)
            except FileNotFoundError:
                pass


class ObjectStore:
    """Every address the configuration allows, behind one object: dispatches to local disk or S3. Thread-safe; cheap to make."""

    def __init__(self, s3: S3Config | None = None) -> None:
        self._s3_config = s3 or S3Config()
        self._local = LocalObjects()
        self._s3: Objects | None = None

    def of(self, uri: str) -> Objects:
        """The store that holds `uri`."""
        if not uri.startswith("s3://"):
            return self._local
        if self._s3 is None:
            from caption_assets.core.s3store import S3Objects

            self._s3 = S3Objects(self._s3_config)
        return self._s3

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.of(prefix).list(prefix, start_after)

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
    return os.environ.get("CAPTION_ASSETS_SCRATCH")


def _walk(folder: str, start_after: str | None) -> Iterator[ObjectInfo]:
    """Files below `folder` in order of their whole path (a folder sorts as `name/`), without holding the tree."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(((e.name + "/" if e.is_dir() else e.name), e) for e in entries if not e.name.startswith(TEMPORARY))
    except FileNotFoundError:
        return
    except NotADirectoryError:
        return
    for name, entry in found:
        path = f"{folder.rstrip('/')}/{name}"
        if start_after is not None and path <= start_after and not start_after.startswith(path):
            continue
        if name.endswith("/"):
            yield from _walk(path.rstrip("/"), start_after)
        elif (start_after is None or path > start_after) and entry.is_file():
            stat = entry.stat()
            yield ObjectInfo(path, stat.st_size, f"{stat.st_mtime_ns}-{stat.st_size}", stat.st_mtime)


TEMPORARY = ".caption-assets-"


class _temporary:
    """A hidden name beside the final one (same file system, so that the rename is atomic); removed when left behind."""

    def __init__(self, uri: str) -> None:
        folder, name = os.path.split(uri)
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"{TEMPORARY}{name[-100:]}.{secrets.token_hex(6)}")

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *exc: object) -> None:
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass


class _local_errors:
    """Turns OSError into ObjectError that names the path. A full disk stays itself: it must stop the run."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise ObjectMissing(f"{self.uri}: does not exist") from error
        if isinstance(error, (IsADirectoryError, NotADirectoryError)):
            raise NotAFile(f"{self.uri}: is not a file") from error
        if isinstance(error, ValueError) and "null" in str(error):
            raise ObjectMissing(f"{self.uri!r}: is no file name") from error
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise ObjectMissing(f"{self.uri[:200]}…: is too long for a file name") from error


def _write(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(uri: str) -> None:
    """The new name itself must survive a power cut."""
    handle = os.open(os.path.dirname(uri), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
