"""What sources hold, record by record: one module per format behind `read_manifest`, and their pictures in `pictures`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby

import pyarrow as pa

from caption_assets.config import DatasetConfig
from caption_assets.core.objectstore import NotAFile, ObjectMissing, ObjectStore
from caption_assets.core.plan.plans import PlanEntry, SourceChanged
from caption_assets.core.sources.images import read_images
from caption_assets.core.sources.jsonl import read_jsonl
from caption_assets.core.sources.listing import record_path
from caption_assets.core.sources.names import safe_text
from caption_assets.core.sources.parquet import read_rows
from caption_assets.core.sources.rows import SCHEMA, Rows, Seen, Tally, fault_place
from caption_assets.core.sources.tar import read_tar
from caption_assets.core.tables import RecordStream

__all__ = ["check_unchanged", "read_manifest"]


def read_manifest(objects: ObjectStore, spec: DatasetConfig, entries: Iterable[PlanEntry]) -> RecordStream:
    """One row of core.columns.MANIFEST per record of a shard, in source order; the shard is not held in memory.

    The summary has records, faults (by reason), ignored, equal_ids and bad_sidecars. Raises SourceChanged for an object whose
    size or etag is not the plan's, PlanError for a part with another number of lines, ObjectError when the store fails.
    """
    tally = Tally()
    return RecordStream(SCHEMA, (b for b in _batches(objects, spec, entries, tally) if b.num_rows), summary=tally.summary)


def check_unchanged(objects: ObjectStore, spec: DatasetConfig, entries: Iterable[PlanEntry]) -> None:
    """Raises SourceChanged for a tar or catalog that is not what was planned: the manifest's places in it may be others' by now.

    One that is gone is told by its pictures, and so are changed pictures that are files of their own.
    """
    for entry in {entry.source_uri: entry for entry in entries if entry.kind != "images"}.values():
        with suppress(ObjectMissing, NotAFile):
            _head(objects, spec, entry)


def _head(objects: ObjectStore, spec: DatasetConfig, entry: PlanEntry) -> None:
    info = objects.head(entry.source_uri)
    if (info.etag, info.size) != (entry.etag, entry.size):
        raise SourceChanged(spec.name, entry.source_uri, f"has changed (now {info.size} bytes, etag {info.etag})")


def _batches(objects: ObjectStore, spec: DatasetConfig, entries: Iterable[PlanEntry], tally: Tally) -> Iterator[pa.RecordBatch]:
    ids = Seen()
    for kind, group in groupby(entries, lambda entry: entry.kind):
        if kind == "images":
            yield from read_images(objects, spec, group, tally)
            continue
        for entry in group:
            for batch in _file(objects, spec, entry, tally):
                if kind != "webdataset":
                    tally.equal_ids += int(ids.before(batch.column("id").drop_null().to_pylist()).sum())
                yield batch


def _file(objects: ObjectStore, spec: DatasetConfig, entry: PlanEntry, tally: Tally) -> Iterator[pa.RecordBatch]:
    """The rows of one tar, or of one part of a catalog. One that is gone, or is no file, is one record with that fault."""
    path = safe_text(record_path(spec, entry.source_uri))
    try:
        _head(objects, spec, entry)
        if entry.kind == "webdataset":
            yield from read_tar(objects, entry, path, tally)
        elif entry.kind == "jsonl":
            yield from read_jsonl(objects, spec.fields, entry, path, tally)
        else:
            yield from read_rows(objects, spec.fields, entry, path, tally)
    except (ObjectMissing, NotAFile) as error:
        rows, uri = Rows(tally), safe_text(entry.source_uri)
        record_id, index = fault_place(path, entry.start)
        rows.add(record_id, None, uri, uri, index, reason=error.reason, detail=safe_text(str(error)))
        yield rows.take()
