"""A sequential stream of one object's bytes: one request, taken up where it broke off, never of two versions."""

from __future__ import annotations

import re
from typing import Any

from caption_assets.core.storage.objects import ByteStream, ObjectError
from caption_assets.core.storage.s3bucket import Access, Bucket, Request
from caption_assets.core.storage.s3faults import fault_of

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class ShortBody(ConnectionError):
    """The connection ended before the body did."""


class S3Stream(ByteStream):
    """`length` bytes (None: to the end) from `offset`; past the end there are none. Raises ObjectError from every read.

    A body that is shorter than announced is asked for again from where it stopped, with If-Match; while bytes keep coming
    the patience of each such request is counted anew.
    """

    def __init__(self, bucket: Bucket, request: Request, offset: int, length: int | None) -> None:
        self._bucket, self._request = bucket, request
        self._position, self._end = offset, None if length is None else offset + length
        self._etag: str | None = None
        self._body: Any = None
        self._barren = 0  # answers in a row that brought no byte
        self._bucket.call(request, self._connect)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        while self._body is not None and len(view):
            try:
                data = self._body.read(len(view))
                if not data and self._position < (self._end or 0):
                    raise ShortBody
            except Exception as error:
                self._resume(error)
                continue
            if not data:
                break
            view[: len(data)] = data
            self._position += len(data)
            self._barren = 0
            return len(data)
        return 0

    def close(self) -> None:
        self._drop()
        super().close()

    def _resume(self, error: Exception) -> None:
        fault = fault_of(error)
        if fault is None:
            raise error
        self._drop()
        self._barren += 1
        if self._barren > 5:
            raise ObjectError(f"{self._request.uri}: cannot be read beyond byte {self._position}: the answers break off")
        self._bucket.pace.refused()
        self._bucket.call(self._request, self._connect)

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None

    def _connect(self, access: Access) -> None:
        bucket, key = self._bucket.name, self._request.key
        asked: dict[str, Any] = {"Bucket": bucket, "Key": key, **self._bucket.payer}
        if self._position or self._end is not None:
            if self._end is not None and self._end <= self._position:
                return
            asked["Range"] = f"bytes={self._position}-{'' if self._end is None else self._end - 1}"
        if self._etag:
            asked["IfMatch"] = self._etag
        try:
            answer = access.boto.get_object(**asked)
        except Exception as error:
            if (fault := fault_of(error)) and fault.kind == "range" and self._etag is None:
                return  # it begins past the end
            raise
        etag = answer.get("ETag")
        if self._etag and etag and etag != self._etag:
            answer["Body"].close()
            raise ObjectError(f"{self._request.uri}: was changed while it was read")
        self._etag = etag
        self._end = self._position + self._announced(answer, "Range" in asked)
        self._body = answer["Body"]

    def _announced(self, answer: Any, ranged: bool) -> int:
        """Bytes the answer should bring; checks that it begins where it was asked to."""
        length = int(answer["ContentLength"])
        if ranged:
            found = _RANGE.match(answer.get("ContentRange") or "")
            if not found or int(found[1]) != self._position:
                answer["Body"].close()
                raise ObjectError(f"{self._request.uri}: the store does not answer requests for a part of an object")
            if found[3] != "*":
                whole = int(found[3])
                return min(self._end or whole, whole) - self._position
        return length
