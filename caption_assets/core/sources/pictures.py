"""The bytes of records' pictures, wherever they lie: members of tars, files, objects, rows of parquet files, http addresses."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import groupby, islice
from typing import Any

from caption_assets.config import DatasetConfig
from caption_assets.core.faults import Fault, PictureFault
from caption_assets.core.objectstore import ObjectError, ObjectMissing, ObjectStore
from caption_assets.core.plan.plans import SourceChanged
from caption_assets.core.sources.addresses import Address, AddressRules
from caption_assets.core.sources.embedded import Embedded
from caption_assets.core.sources.members import Members

CONCURRENCY = 32
PORTION = 256
HTTP_THREADS = 16
WAITING = 32
"""Records without a store read (refused ones, http) that may wait for their turn."""
OUTAGE = 100
"""So many store errors in a row are no faults of pictures: the store is down."""
_OUTAGE_REASONS = frozenset(("s3_error", "throttled"))

Read = tuple["PictureRef", bytes | Fault]


@dataclass(frozen=True, slots=True)
class PictureRef:
    """Where one picture lies, as its manifest row says: a member of a tar has byte_offset and byte_length (of the unpacked tar),
    a file is its own source_uri, a picture in a parquet row is `{source_uri}#{source_index}`, all else is a catalog's text."""

    record_id: str
    uri: str
    source_uri: str
    source_index: int
    byte_offset: int | None
    byte_length: int | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> PictureRef:
        """From a row of the manifest (one that has a uri)."""
        return cls(*(row[name] for name in REF_COLUMNS))

    @property
    def place(self) -> str:
        """member, row, file or text."""
        if self.byte_offset is not None:
            return "member"
        if self.uri == self.source_uri:
            return "file"
        return "row" if self.uri == f"{self.source_uri}#{self.source_index}" else "text"


REF_COLUMNS = tuple(field.name for field in fields(PictureRef))
"""The manifest columns that say where a picture lies."""


class Pictures:
    """Reads pictures under the rules of one dataset (images.local_roots, s3_buckets, http, max_bytes). Thread-safe."""

    def __init__(self, objects: ObjectStore, spec: DatasetConfig) -> None:
        self._objects, self._spec = objects, spec
        self._rules = AddressRules(spec)
        self._limit = spec.images.max_bytes
        self._http: ThreadPoolExecutor | None = None

    def read(self, ref: PictureRef) -> bytes:
        """The bytes of one picture. Raises PictureFault, and SourceChanged for a file of another size than planned."""
        ((_, data),) = self.stream((ref,))
        if isinstance(data, Fault):
            raise PictureFault(data.reason, data.detail)
        return data

    def stream(self, refs: Iterable[PictureRef]) -> Iterator[Read]:
        """Each picture's bytes, or why there are none, in the order of `refs`, read a little ahead.

        Best in the order of the manifest. Raises SourceChanged, and ObjectError when the store fails for OUTAGE of them in a row.
        """
        failing = 0
        for (place, source), group in groupby(
            refs, lambda ref: (ref.place, ref.source_uri if ref.place in ("member", "row") else "")
        ):
            for ref, data in self._group(place, source, group):
                failing = failing + 1 if isinstance(data, Fault) and data.reason in _OUTAGE_REASONS else 0
                if failing >= OUTAGE and isinstance(data, Fault):
                    raise ObjectError(f"{failing} pictures in a row could not be read, the last one: {data.detail}", data.reason)
                yield ref, data

    def _group(self, place: str, source: str, refs: Iterator[PictureRef]) -> Iterator[Read]:
        if place == "member":
            return self._members(source, refs)
        return self._rows(source, refs) if place == "row" else self._single(refs)

    def _members(self, source: str, refs: Iterator[PictureRef]) -> Iterator[Read]:
        members = Members(self._objects, source)
        try:
            while portion := list(islice(refs, PORTION)):
                fit = [ref for ref in portion if (ref.byte_length or 0) <= self._limit]
                found = members.read([(ref.byte_offset or 0, ref.byte_length or 0) for ref in fit])
                for ref in portion:
                    if (ref.byte_length or 0) > self._limit:
                        yield ref, self._too_large(ref.byte_length or 0)
                    else:
                        data = next(found)
                        yield ref, self._fault(ref, data) if isinstance(data, ObjectError) else data
        finally:
            members.close()

    def _rows(self, source: str, refs: Iterator[PictureRef]) -> Iterator[Read]:
        with Embedded(self._objects, self._spec.fields, source) as rows:
            for ref in refs:
                data = rows.read(ref.source_index)
                yield ref, self._too_large(len(data)) if isinstance(data, bytes) and len(data) > self._limit else data

    def _single(self, refs: Iterator[PictureRef]) -> Iterator[Read]:
        """Objects of their own, read side by side in bounded number."""
        waiting: deque[tuple[PictureRef, Address | Future[bytes] | Fault]] = deque()

        def items() -> Iterator[tuple[str, int, int]]:
            for ref in refs:
                where = self._where(ref)
                waiting.append((ref, where))
                if isinstance(where, Address):
                    yield where.uris[0], 0, self._limit + 1
                elif sum(not isinstance(w, Address) for _, w in waiting) >= WAITING:
                    return

        while True:
            drawn = 0
            for data in self._objects.read_many(items(), CONCURRENCY):
                drawn += 1
                while not isinstance(waiting[0][1], Address):
                    yield self._without_store(*waiting.popleft())
                ref, where = waiting.popleft()
                assert isinstance(where, Address)
                yield ref, self._read(ref, where, data)
            drawn += len(waiting)
            while waiting:
                yield self._without_store(*waiting.popleft())
            if not drawn:
                return

    def _where(self, ref: PictureRef) -> Address | Future[bytes] | Fault:
        if ref.uri == ref.source_uri:
            too_large = (ref.byte_length or 0) > self._limit
            return self._too_large(ref.byte_length or 0) if too_large else Address("object", (ref.uri,))
        try:
            address = self._rules.resolve(ref.uri, ref.source_uri)
        except PictureFault as error:
            return error.fault
        if address.kind == "object":
            return address
        if self._http is None:
            self._http = ThreadPoolExecutor(HTTP_THREADS, thread_name_prefix="http")
        from caption_assets.core.storage.web import fetch_http  # aiohttp, which collections without http pictures can do without

        return self._http.submit(fetch_http, address.uris[0], self._limit)

    def _without_store(self, ref: PictureRef, where: Address | Future[bytes] | Fault) -> Read:
        assert not isinstance(where, Address)
        if isinstance(where, Fault):
            return ref, where
        try:
            return ref, where.result()
        except PictureFault as error:
            return ref, error.fault

    def _read(self, ref: PictureRef, where: Address, data: bytes | ObjectError) -> bytes | Fault:
        for uri in where.uris[1:]:
            if not isinstance(data, ObjectMissing):
                break
            try:
                data = self._objects.read(uri, 0, self._limit + 1)
            except ObjectError as error:
                data = error
        if isinstance(data, ObjectError):
            return self._fault(ref, data)
        if len(data) > self._limit:
            return self._too_large(None)
        if ref.uri == ref.source_uri and ref.byte_length not in (None, len(data)):
            raise SourceChanged(self._spec.name, ref.uri, f"has changed from {ref.byte_length} to {len(data)} bytes")
        return data

    def _fault(self, ref: PictureRef, error: ObjectError) -> Fault:
        """A row that points to a local file which is not there has no picture; all else that is gone was an object once."""
        missing = (
            isinstance(error, ObjectMissing) and ref.place == "text" and "://" not in ref.uri and "://" not in ref.source_uri
        )
        return Fault("missing_image" if missing else error.reason, str(error)[:500])

    def _too_large(self, size: int | None) -> Fault:
        held = "more bytes than" if size is None else f"{size} bytes;"
        return Fault("too_many_pixels", f"a file of {held} images.max_bytes allows {self._limit}")
