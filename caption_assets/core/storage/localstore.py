"""Files below absolute paths as objects. Every write appears whole or not at all and survives a power cut.

The address of a file is its path; bytes of a name that are no UTF-8 are written `\\udcff` in it, so that every address is text.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat as modes
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import BinaryIO

from caption_assets.core.storage.objects import (
    STREAM_BLOCK,
    ByteStream,
    MachineFault,
    NotAFile,
    ObjectError,
    ObjectInfo,
    ObjectMissing,
)

READ_THREADS = 4
TEMPORARY = ".caption-assets-"
# What says something about this machine and nothing about the object: the run must stop.
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# A folder, a file among the folders above, a socket, a link that leads in a circle.
_NO_FILE = (errno.EISDIR, errno.ENOTDIR, errno.ENXIO, errno.ELOOP)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class LocalObjects:
    """Files of this machine; see Objects."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def conditional_puts(self, uri: str) -> bool:
        return True

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Files below the folder `prefix`; none where it does not exist. Links to folders are followed, never in a circle.
        Named pipes and links to nothing are listed too: whoever reads them learns what they are."""
        return _walk(prefix.rstrip("/") or "/", start_after)

    def folders(self, prefix: str) -> Iterator[str]:
        names = (name[:-1] for name in _names(prefix) if name.endswith("/"))
        return (name for name in names if next(self.list(f"{prefix}{name}/"), None) is not None)

    def head(self, uri: str) -> ObjectInfo:
        with _local_errors(uri):
            return _info(uri, _not_a_folder(uri, os.stat(native_path(uri))))

    def read(self, uri: str, offset: int = 0, length: int | None = None) -> bytes:
        with _local_errors(uri):
            handle, size = _open(uri)
            try:
                left = max(0, size - offset) if length is None else min(length, max(0, size - offset))
                data = os.pread(handle, left, offset)
                while len(data) < left and (more := os.pread(handle, left - len(data), offset + len(data))):
                    data += more
                return data
            finally:
                os.close(handle)

    def submit(self, uri: str, offset: int, length: int | None, stop: Event) -> Future[bytes]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="local-read")
        return self._pool.submit(self.read, uri, offset, length)

    def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        with _local_errors(uri):
            handle, _ = _open(uri)
            return io.BufferedReader(_Span(handle, uri, offset, length), STREAM_BLOCK)

    def put(self, uri: str, data: bytes) -> None:
        with _local_errors(uri, "written"), _temporary(uri) as temporary:
            _write(temporary, data)
            os.replace(temporary, uri)
            _sync_folder(uri)

    def put_file(self, uri: str, path: Path) -> None:
        with _local_errors(uri, "written"), _temporary(uri) as temporary:
            try:
                os.replace(path, temporary)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shutil.copyfile(path, temporary)
                os.unlink(path)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, uri)
            _sync_folder(uri)

    def put_new(self, uri: str, data: bytes) -> bool:
        with _local_errors(uri, "written"), _temporary(uri) as temporary:
            _write(temporary, data)
            try:
                os.link(temporary, uri)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if not _rename_new(temporary, uri):
                    return False
            _sync_folder(uri)
            return True

    def delete(self, uri: str) -> None:
        with _local_errors(uri, "deleted"), contextlib.suppress(FileNotFoundError):
            os.unlink(uri)


class _Span(ByteStream):
    """`length` bytes (None: all) of an open file from `offset`. Faults while reading name the file, as those of `read` do."""

    def __init__(self, handle: int, uri: str, offset: int, length: int | None) -> None:
        self._file, self._uri, self._left, self._start = io.FileIO(handle, "rb"), uri, length, offset
        self._file.seek(offset)

    def seekable(self) -> bool:
        """Whole files are: an index of a large tar reads its headers only."""
        return self._left is None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Positions count from the span's beginning."""
        if whence == io.SEEK_SET:
            offset += self._start
        return self._file.seek(offset, whence) - self._start

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)[: self._left]
        with _local_errors(self._uri):
            count = self._file.readinto(view) or 0
        if self._left is not None:
            self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def native_path(uri: str) -> str:
    """The path of an address, as the operating system takes it."""
    if "\\udc" not in uri or os.path.lexists(uri):
        return uri
    return re.sub(r"\\u(dc[89a-f][0-9a-f])", lambda match: chr(int(match[1], 16)), uri)


def address(path: str) -> str:
    """The address of a path that the operating system gave."""
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode()


def _walk(top: str, start_after: str | None) -> Iterator[ObjectInfo]:
    """Files below `top` in order of their whole path (a folder sorts as `name/`), holding one folder's names per level."""
    stack = [(top, _names(top), _identities(top, ()))]
    while stack:
        folder, names, above = stack[-1]
        name = next(names, None)
        if name is None:
            stack.pop()
            continue
        path = f"{folder.rstrip('/')}/{name}"
        if name.endswith("/"):
            below = start_after is None or path > start_after or start_after.startswith(path)
            if below and (identities := _identities(path, above)):
                stack.append((path, _names(path), identities))
        elif start_after is None or path > start_after:
            with contextlib.suppress(FileNotFoundError):
                yield _info(path, _stat(path))


def _names(folder: str) -> Iterator[str]:
    """The names in a folder in order, with `/` behind those of folders. Names only: a folder may hold millions."""
    try:
        with os.scandir(native_path(folder)) as entries:
            return iter(sorted(address(e.name) + "/" * _is_folder(e) for e in entries if not e.name.startswith(TEMPORARY)))
    except (FileNotFoundError, NotADirectoryError):
        return iter(())
    except OSError as error:
        raise ObjectError(f"{folder}: the folder cannot be listed: {error.strerror}") from error


def _identities(folder: str, above: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Those of the folders above and its own; empty where it is gone or one of them (a link that leads in a circle)."""
    try:
        stat = os.stat(native_path(folder))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    own = (stat.st_dev, stat.st_ino)
    return () if own in above else (*above, own)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _stat(path: str) -> os.stat_result:
    path = native_path(path)
    try:
        return os.stat(path)
    except OSError:
        return os.lstat(path)


def _info(uri: str, stat: os.stat_result) -> ObjectInfo:
    return ObjectInfo(uri, stat.st_size, f"{stat.st_mtime_ns}-{stat.st_size}", stat.st_mtime)


def _not_a_folder(uri: str, stat: os.stat_result) -> os.stat_result:
    if modes.S_ISDIR(stat.st_mode):
        raise NotAFile(f"{uri}: is a folder")
    return stat


def _open(uri: str) -> tuple[int, int]:
    """A descriptor and the size. Not blocking: a named pipe in a source must not stop the shard."""
    handle = os.open(native_path(uri), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    stat = os.fstat(handle)
    if not modes.S_ISREG(stat.st_mode):
        os.close(handle)
        raise NotAFile(f"{uri}: is not a file")
    return handle, stat.st_size


class _temporary:
    """A hidden name beside the final one (same file system, so that the rename is atomic); removed when left behind."""

    def __init__(self, uri: str) -> None:
        folder = os.path.dirname(uri)
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"{TEMPORARY}{secrets.token_hex(6)}")

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


class _local_errors:
    """Turns OSError into ObjectError that names the path, and a full disk into MachineFault: it must stop the run."""

    def __init__(self, uri: str, verb: str = "read") -> None:
        self.uri, self.verb = uri, verb

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and self.verb == "written" and (why := _in_the_way(self.uri)):
            raise ObjectError(f"{self.uri}: cannot be written: {why}") from error
        if isinstance(error, FileNotFoundError):
            raise ObjectMissing(f"{self.uri}: does not exist") from error
        if isinstance(error, OSError) and error.errno in _NO_FILE:
            raise NotAFile(f"{self.uri}: is not a file") from error
        if isinstance(error, ValueError):  # a NUL, or a character that no file name has
            raise ObjectMissing(f"{self.uri!r}: is no file name") from error
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise ObjectMissing(f"{self.uri[:200]}…: is too long for a file name") from error
        if isinstance(error, OSError) and error.errno in _MACHINE:
            raise MachineFault(error.errno, error.strerror or "fails", self.uri) from error
        if isinstance(error, OSError):
            raise ObjectError(f"{self.uri}: cannot be {self.verb}: {error.strerror or error}") from error


def _in_the_way(uri: str) -> str | None:
    """What stands where a file's folders should be: a disk that is not mounted leaves a link to nothing."""
    for folder in reversed(Path(uri).parents):
        if os.path.lexists(folder) and not os.path.isdir(folder):
            what = "a link that leads nowhere" if os.path.islink(folder) else "a file"
            return f"{folder} is {what}, and a folder is wanted there"
    return None


def _write(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _rename_new(temporary: str, uri: str) -> bool:
    """`link` for file systems without hard links: look and rename under the folder's lock."""
    handle = os.open(os.path.dirname(uri), os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.lexists(uri):
            return False
        os.rename(temporary, uri)
        return True
    finally:
        os.close(handle)


def _sync_folder(uri: str) -> None:
    """The new name itself must survive a power cut."""
    handle = os.open(os.path.dirname(uri), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
