"""What a format's writer works with: the selected records of one shard, as rows, as samples, with their pictures."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from caption_assets.config import DatasetConfig, S3Config
from caption_assets.core.exports.selection import ExportError, Selection, selected
from caption_assets.core.exports.strictjson import strict_json
from caption_assets.core.exports.tarfiles import Contents
from caption_assets.core.exports.target import Target
from caption_assets.core.faults import Fault
from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.core.plan.plans import Plan, SourceChanged
from caption_assets.core.sources.pictures import PictureRef, Pictures
from caption_assets.core.tables import TableHandle

HEAD = ["record_id", "id", "uri"]
TAIL = ["width", "height", "format", "file_bytes", "sha256", "duplicate_of", "source_uri", "source_index"]


@dataclass(frozen=True)
class Options:
    """How an export is written. csv_safe: no cell begins a formula. pictures: txt and json stand beside copies of the pictures,
    instead of in a mirror of their folders. maxcount, maxsize: samples and bytes of a tar. processes: that write tars."""

    csv_safe: bool = False
    pictures: bool = False
    maxcount: int = 10_000
    maxsize: int = 1 << 30
    processes: int = 2

    def as_dict(self) -> dict[str, Any]:
        """What decides about the bytes, as written into export.json."""
        return {"csv_safe": self.csv_safe, "pictures": self.pictures, "maxcount": self.maxcount, "maxsize": self.maxsize}


@dataclass(frozen=True)
class Picture:
    """A picture to be read: where it lies, and what it must be. size in bytes."""

    ref: PictureRef
    size: int
    sha256: str


@dataclass(frozen=True)
class ShardJob:
    """One shard on its way into one format. outputs: to be exported, the first one being the caption of formats that have one."""

    objects: ObjectStore
    spec: DatasetConfig
    shard: str
    manifest: TableHandle
    merged: TableHandle
    outputs: list[str]
    selection: Selection
    options: Options
    target: Target
    fingerprint: str
    shared_stems: Callable[[], frozenset[str]]
    """source_uris without extension that several files of folder sources share."""

    def tables(self) -> Iterator[pa.Table]:
        """The selected rows of merged, in order."""
        return selected(self.objects, self.merged, self.outputs, self.selection)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The same one by one."""
        for rows in self.tables():
            yield from rows.to_pylist()

    def rows_with_places(self) -> Iterator[tuple[dict[str, Any], Picture]]:
        """Rows with their pictures' places, which only the manifest knows. Raises ExportError where it is another manifest."""
        places = self._places()
        for row in self.rows():
            for place in places:
                if place["record_id"] == row["record_id"]:
                    yield row, Picture(PictureRef.of(place), row["file_bytes"], row["sha256"])
                    break
            else:
                raise ExportError(f"{self.manifest.uri} does not have {row['record_id']}: materialize merged of this shard again")

    def rows_with_pictures(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Rows with the bytes of their pictures; those that cannot be read now are noted in the target and left out."""
        waiting: deque[dict[str, Any]] = deque()

        def wanted() -> Iterator[Picture]:
            for row, picture in self.rows_with_places():
                waiting.append(row)
                yield picture

        for data in picture_contents(self.objects.s3, self.spec)(wanted()):
            row = waiting.popleft()
            if isinstance(data, Fault):
                self.target.left_out.append(f"{row['record_id']}: {data.reason}: {data.detail}")
            else:
                yield row, data

    def contents(self) -> Callable[[], Contents]:
        """Reads Pictures, in whichever process."""
        return partial(picture_contents, self.objects.s3, self.spec)

    def caption(self, row: Mapping[str, Any]) -> str:
        """The first of the outputs that the row has."""
        return next(row[name] for name in self.outputs if row[name] is not None)

    def as_json(self, row: Mapping[str, Any], **more: Any) -> bytes:
        """A row as one JSON object: the columns of merged, the original record as `record`, only the outputs asked for."""
        shown: dict[str, Any] = {**more, **{name: row[name] for name in HEAD}}
        for name in self.outputs:
            shown |= {name: row[name], f"{name}_reason": row[f"{name}_reason"], f"{name}_info": row[f"{name}_info"]}
        record = row["record_json"]
        shown |= {**{name: row[name] for name in TAIL}, "record": orjson.Fragment(strict_json(record)) if record else None}
        return orjson.dumps(shown)

    def columns(self) -> list[str]:
        """The columns of merged without the outputs that are not asked for."""
        others = {name.removesuffix("_info") for name in self.merged.schema.names if name.endswith("_info")} - set(self.outputs)
        hidden = {f"{name}{end}" for name in others for end in ("", "_reason", "_info")}
        return [name for name in self.merged.schema.names if name not in hidden]

    def _places(self) -> Iterator[dict[str, Any]]:
        names = list(PictureRef.__dataclass_fields__)
        for batch in self.manifest.batches(self.objects, names):
            yield from batch.to_pylist()


def picture_contents(s3: S3Config, spec: DatasetConfig) -> Contents:
    """Reads Pictures in order, a little ahead. Raises SourceChanged for other bytes than were captioned; of tars it is known from
    the tar itself (check_tars)."""
    pictures = Pictures(ObjectStore(s3), spec)

    def read(wanted: Iterable[Picture]) -> Iterator[bytes | Fault]:
        waiting: deque[Picture] = deque()

        def refs() -> Iterator[PictureRef]:
            for picture in wanted:
                waiting.append(picture)
                yield picture.ref

        for ref, data in pictures.stream(refs()):
            picture = waiting.popleft()
            if isinstance(data, bytes) and ref.place != "member" and hashlib.sha256(data).hexdigest() != picture.sha256:
                raise SourceChanged(spec.name, ref.source_uri, f"the picture of {ref.record_id} has other bytes")
            yield data

    return read


def check_tars(objects: ObjectStore, plan: Plan, spec: DatasetConfig, shard: str) -> None:
    """Raises SourceChanged where a tar of the shard is not the one that was planned."""
    if plan.generations[plan.planned[shard].generation].kind != "webdataset":
        return
    for entry in plan.entries(shard):
        try:
            found = objects.head(entry.source_uri)
        except ObjectMissing:
            raise SourceChanged(spec.name, entry.source_uri, "is gone") from None
        if (found.size, found.etag) != (entry.size, entry.etag):
            raise SourceChanged(spec.name, entry.source_uri, "changed")
