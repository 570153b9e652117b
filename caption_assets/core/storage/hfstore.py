"""Datasets of the Hugging Face hub as objects: `hf://datasets/owner/name[@revision]/path`. Read only.

Needs the extra `hf` (huggingface_hub). The token is the hub's own: `HF_TOKEN` or `hf auth login`.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, NoReturn, TypeVar

from caption_assets.core.storage.objects import (
    STREAM_BLOCK,
    ByteStream,
    NotAFile,
    ObjectError,
    ObjectInfo,
    ObjectMissing,
    Throttled,
)
from caption_assets.core.storage.pacing import pause

try:
    import huggingface_hub as hub
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
except ImportError:
    raise ObjectError("hf:// addresses need huggingface_hub: pip install 'caption-assets[hf]'") from None

PATIENCE_S = 30.0  # the hub library itself waits too
READ_THREADS = 8
_ADDRESS = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.*))?", re.DOTALL)

_TRANSPORTS = ("httpx", "httpx2", "httpcore", "httpcore2")  # which of them hub uses depends on its version

T = TypeVar("T")


class HfObjects:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="hf-read")

    def conditional_puts(self, uri: str) -> bool:
        return False

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Files whose address begins with the prefix, in order; the tree below its last `/` is held while it is sorted."""
        repository, revision, path = _split(prefix)
        root = prefix[: len(prefix) - len(path)]
        folder = path.rpartition("/")[0]

        def ask() -> list[ObjectInfo]:
            tree = hub.HfApi().list_repo_tree(repository, folder or None, recursive=True, revision=revision, repo_type="dataset")
            found = (_info(root + entry.path, entry) for entry in tree if isinstance(entry, hub.RepoFile))
            try:
                return sorted((info for info in found if info.uri.startswith(prefix)), key=lambda info: info.uri)
            except EntryNotFoundError:
                return []

        infos = _patiently(prefix, ask)
        yield from (info for info in infos if start_after is None or info.uri > start_after)

    def folders(self, prefix: str) -> Iterator[str]:
        below = (info.uri[len(prefix) :].partition("/") for info in self.list(prefix))
        yield from dict.fromkeys(name for name, slash, _ in below if slash)

    def head(self, uri: str) -> ObjectInfo:
        repository, revision, path = _split(uri)
        ask = hub.HfApi().get_paths_info
        found = _patiently(uri, lambda: ask(repository, [path], revision=revision, repo_type="dataset")) if path else []
        if not found:
            raise ObjectMissing(f"{uri}: does not exist")
        if not isinstance(found[0], hub.RepoFile):
            raise NotAFile(f"{uri}: is a folder")
        return _info(uri, found[0])

    def read(self, uri: str, offset: int = 0, length: int | None = None) -> bytes:
        with self.open(uri, offset, length) as stream:
            return stream.read()

    def submit(self, uri: str, offset: int, length: int | None, stop: Event) -> Future[bytes]:
        return self._pool.submit(self.read, uri, offset, length)

    def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        _split(uri)
        stream = _Stream(uri, offset, length)
        buffered = io.BufferedReader(stream, STREAM_BLOCK)
        if length != 0:
            buffered.peek(1)  # what is missing is found out now, not at the first read
        return buffered

    def put(self, uri: str, data: bytes) -> NoReturn:
        raise ObjectError(f"{uri}: nothing is written to the Hugging Face hub")

    def put_file(self, uri: str, path: Path) -> NoReturn:
        self.put(uri, b"")

    def put_new(self, uri: str, data: bytes) -> NoReturn:
        self.put(uri, b"")

    def delete(self, uri: str) -> NoReturn:
        self.put(uri, b"")


class _Stream(ByteStream):
    """The hub's own streaming file, which takes up again what broke off, from an offset and for `length` bytes."""

    def __init__(self, uri: str, offset: int, length: int | None) -> None:
        self._uri, self._left = uri, length
        self._file = _patiently(uri, lambda: hub.HfFileSystem().open(uri, "rb", block_size=0))
        self._file.loc = offset

    def readinto(self, buffer: Any) -> int:
        wanted = len(buffer) if self._left is None else min(len(buffer), self._left)
        data = _patiently(self._uri, lambda: self._file.read(wanted)) if wanted else b""
        memoryview(buffer)[: len(data)] = data
        if self._left is not None:
            self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _patiently(uri: str, ask: Callable[[], T]) -> T:
    """What `ask` returns, asked again while the hub is busy, broken or not to be reached."""
    started, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            return ask()
        except Exception as error:
            found, passes = _error(uri, error)
            if found is None:
                raise
            rest = pause(tries)
            if not passes or time.monotonic() + rest - started > PATIENCE_S:
                raise found from None  # its cause may name a signed address
            time.sleep(rest)


def _error(uri: str, error: Exception) -> tuple[ObjectError | None, bool]:
    """What it means, and whether it may pass; None where it is no fault of the hub."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, (EntryNotFoundError, FileNotFoundError)):
        return ObjectMissing(f"{uri}: does not exist"), False
    if isinstance(error, (RepositoryNotFoundError, RevisionNotFoundError)):
        return ObjectMissing(f"{uri}: no such dataset or revision on the hub, or it is private: set HF_TOKEN"), False
    if status in (429, 503):
        return Throttled(f"{uri}: the hub refuses requests ({status})"), True
    if status in (401, 403):
        return ObjectError(
            f"{uri}: access is refused ({status}): the dataset may be gated: accept its terms, set HF_TOKEN"
        ), False
    if isinstance(error, (HfHubHTTPError, OSError)) or type(error).__module__.partition(".")[0] in _TRANSPORTS:
        return ObjectError(f"{uri}: cannot be read from the hub: {status or type(error).__name__}"), status not in range(400, 500)
    return None, False


def _split(uri: str) -> tuple[str, str | None, str]:
    """owner/name, revision and path; all but the revision are literal."""
    found = _ADDRESS.fullmatch(uri)
    if not found:
        raise ObjectMissing(f"{uri}: is no address of the form hf://datasets/owner/name[@revision]/path")
    revision = found[2].replace("%2F", "/") if found[2] else None
    return found[1], revision, found[3] or ""


def _info(uri: str, entry: Any) -> ObjectInfo:
    """The hub tells no times in listings: a file there is never half copied, so it counts as old."""
    etag = entry.lfs.sha256 if entry.lfs else entry.blob_id
    return ObjectInfo(uri, entry.size, etag, 0.0)
