"""Objects in S3 and what speaks its protocol. Keys are literal. Every request goes through its bucket's pace and patience.

Reads of single objects and ranges go through obstore (a fifth of boto3's CPU time); keys that obstore cannot name, and all
that lists, writes or streams, go through boto3.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import obstore

from caption_assets.config import S3Config
from caption_assets.core.storage.objects import STREAM_BLOCK, ObjectError, ObjectInfo, ObjectMissing
from caption_assets.core.storage.s3bucket import PATIENCE_S, Access, Bucket, Request
from caption_assets.core.storage.s3faults import fault_of, split
from caption_assets.core.storage.s3stream import S3Stream
from caption_assets.core.storage.s3upload import md5, upload

READ_THREADS = 32
# obstore drops slashes at the ends, and refuses empty and dotted segments and control characters.
_NOT_FOR_OBSTORE = re.compile(r"^/|/$|//|(^|/)\.{1,2}(/|$)|[\x00-\x1f\x7f]")
_NO_CONDITIONS = ("NotImplemented", "InvalidArgument", "InvalidRequest")


class S3Objects:
    """The buckets of one configuration. Thread-safe."""

    def __init__(self, config: S3Config, patience_s: float = PATIENCE_S) -> None:
        self._config, self._patience_s = config, patience_s
        self._buckets: dict[str, Bucket] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def bucket(self, name: str) -> Bucket:
        with self._lock:
            if name not in self._buckets:
                self._buckets[name] = Bucket(name, self._config.for_bucket(name), self._patience_s)
            return self._buckets[name]

    def conditional_puts(self, uri: str) -> bool | None:
        """Whether the bucket refuses to overwrite when asked so; None before the first `put_new` into it."""
        return self.bucket(split(uri)[0]).conditional_puts

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Keys that begin with the prefix, in order, page by page. Directory markers are among them (`objects.is_marker`)."""
        root = f"s3://{split(prefix)[0]}/"
        for page in self._pages(prefix, {"StartAfter": split(start_after)[1]} if start_after else {}):
            for entry in page.get("Contents") or ():
                yield _info(root + entry["Key"], entry["Size"], entry)

    def folders(self, prefix: str) -> Iterator[str]:
        key = split(prefix)[1]
        for page in self._pages(prefix, {"Delimiter": "/"}):
            for found in page.get("CommonPrefixes") or ():
                yield found["Prefix"][len(key) : -1]

    def _pages(self, prefix: str, how: dict[str, str]) -> Iterator[Any]:
        """The answers of a listing, to its end."""
        name, key = split(prefix)
        bucket, position = self.bucket(name), how
        while True:
            page = bucket.call(Request("listed", prefix, key), _lister(bucket, key, position))
            yield page
            if not page.get("IsTruncated"):
                return
            token, entries = page.get("NextContinuationToken"), page.get("Contents")
            following = {"ContinuationToken": token} if token else {"StartAfter": entries[-1]["Key"]} if entries else position
            following = {**how, **following}
            if following == position:
                raise ObjectError(f"{prefix}: the store's listing does not go on, though it says there is more")
            position = following

    def head(self, uri: str) -> ObjectInfo:
        name, key = _key(uri)
        bucket = self.bucket(name)
        request = Request("read", uri, key)
        found = bucket.call(request, lambda access: access.boto.head_object(Bucket=name, Key=key, **bucket.payer))
        return _info(uri, found["ContentLength"], found)

    def read(self, uri: str, offset: int = 0, length: int | None = None, stop: threading.Event | None = None) -> bytes:
        name, key = _key(uri)
        if length is not None and length <= 0:
            return b""
        if _NOT_FOR_OBSTORE.search(key):
            with self.open(uri, offset, length) as stream:
                return stream.read()
        return self.bucket(name).call(Request("read", uri, key), lambda access: _get(access, key, offset, length), stop=stop)

    def submit(self, uri: str, offset: int, length: int | None, stop: threading.Event) -> Future[bytes]:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="s3-read")
        return self._pool.submit(self.read, uri, offset, length, stop)

    def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        name, key = _key(uri)
        return io.BufferedReader(S3Stream(self.bucket(name), Request("read", uri, key), offset, length), STREAM_BLOCK)

    def put(self, uri: str, data: bytes) -> None:
        name, key = _key(uri)
        bucket = self.bucket(name)
        bucket.call(Request("written", uri, key), lambda access: _put(access, bucket, key, data))

    def put_file(self, uri: str, path: Path) -> None:
        name, key = _key(uri)
        upload(self.bucket(name), Request("written", uri, key), path)
        os.unlink(path)

    def put_new(self, uri: str, data: bytes) -> bool:
        """Where the store knows no conditional puts: looks, writes and reads back, which two writers of one instant survive
        only by luck."""
        name, key = _key(uri)
        bucket = self.bucket(name)
        request = Request("written", uri, key)
        with contextlib.suppress(ObjectMissing):
            self.head(uri)
            return False
        if bucket.conditional_puts is not False:
            attempt = _PutNew(bucket, key, data)
            won = bucket.call(request, attempt)
            if won and bucket.conditional_puts is None:
                # Whether the condition counts is learnt by writing the same bytes there once more.
                bucket.conditional_puts = bucket.call(request, _PutNew(bucket, key, data)) is False
            if won:
                return True
            if won is False:
                # Refused because of another's object or, where the answer to an earlier try was lost, of our own.
                return attempt.tries > 1 and self.read(uri) == data
        self.put(uri, data)
        return self.read(uri) == data

    def delete(self, uri: str) -> None:
        name, key = _key(uri)
        with contextlib.suppress(ObjectMissing):
            self.bucket(name).call(Request("deleted", uri, key), lambda access: access.boto.delete_object(Bucket=name, Key=key))


def _key(uri: str) -> tuple[str, str]:
    bucket, key = split(uri)
    if not key:
        raise ObjectMissing(f"{uri}: names a bucket, not an object")
    return bucket, key


def _info(uri: str, size: int, answer: Any) -> ObjectInfo:
    """From an entry of a listing or a head: some stores quote the etag or give fractions of a second in one of them only."""
    return ObjectInfo(uri, size, str(answer.get("ETag", "")).strip('"'), float(int(answer["LastModified"].timestamp())))


def _lister(bucket: Bucket, prefix: str, position: dict[str, str]) -> Callable[[Access], Any]:
    return lambda access: access.boto.list_objects_v2(Bucket=bucket.name, Prefix=prefix, **position, **bucket.payer)


def _get(access: Access, key: str, offset: int, length: int | None) -> bytes:
    try:
        if length is not None:
            return bytes(obstore.get_range(access.fast(), key, start=offset, length=length))
        options: Any = {"range": {"offset": offset}} if offset else None
        return bytes(obstore.get(access.fast(), key, options=options).bytes())
    except Exception as error:
        if (fault := fault_of(error)) and fault.kind == "range":
            return b""
        raise


def _put(access: Access, bucket: Bucket, key: str, data: bytes, **conditions: str) -> None:
    access.boto.put_object(Bucket=bucket.name, Key=key, Body=data, ContentMD5=md5(data), **bucket.payer, **conditions)


class _PutNew:
    """True: written; False: refused, since there is one; None: the store does not take the condition."""

    def __init__(self, bucket: Bucket, key: str, data: bytes) -> None:
        self._bucket, self._key, self._data, self.tries = bucket, key, data, 0

    def __call__(self, access: Access) -> bool | None:
        self.tries += 1
        try:
            _put(access, self._bucket, self._key, self._data, IfNoneMatch="*")
            return True
        except Exception as error:
            fault = fault_of(error)
            if fault and fault.kind == "precondition":
                self._bucket.conditional_puts = True
                return False
            if fault and (fault.status == 501 or fault.code in _NO_CONDITIONS):
                self._bucket.conditional_puts = False
                return None
            raise
