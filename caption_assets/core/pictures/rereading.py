"""Pictures that could not be read for a passing reason, read again: the shard's grids stay, the mapping gets their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from caption_assets.config import DatasetConfig
from caption_assets.core.columns import MAPPING, TRANSIENT_REASONS
from caption_assets.core.faults import Fault
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.pictures.examining import examine, mapping_row
from caption_assets.core.shardrows import beside
from caption_assets.core.sources.pictures import REF_COLUMNS, PictureRef, Pictures
from caption_assets.core.tables import RecordStream, TableHandle, arrow_schema

_MAPPING = arrow_schema(MAPPING)


def unread(mapping: TableHandle) -> int:
    """How many pictures of the shard could not be read in passing."""
    return sum(mapping.summary.get("faults", {}).get(reason, 0) for reason in TRANSIENT_REASONS)


def read_again(objects: ObjectStore, spec: DatasetConfig, manifest: TableHandle, mapping: TableHandle) -> RecordStream:
    """The mapping with new rows for its unread pictures. One that can be read now stands in no grid: it is asked by itself,
    unless an earlier record of the shard shows the same picture. Errors of the store are raised."""
    again = _Again(objects, spec, manifest, mapping)
    kept = {name: text for name, text in mapping.metadata.items() if name != "summary"}
    return RecordStream(_MAPPING, again.batches(), lambda: kept, again.summary)


class _Again:
    def __init__(self, objects: ObjectStore, spec: DatasetConfig, manifest: TableHandle, mapping: TableHandle) -> None:
        self._objects, self._spec, self._manifest, self._mapping = objects, spec, manifest, mapping
        self._faults: Counter[str] = Counter()
        self._duplicates = 0

    def summary(self) -> dict[str, Any]:
        return {**self._mapping.summary, "duplicates": self._duplicates, "faults": dict(self._faults)}

    def batches(self) -> Iterator[pa.RecordBatch]:
        new = {ref.record_id: self._row(ref, data) for ref, data in Pictures(self._objects, self._spec).stream(self._unread())}
        hashes = [row["sha256"] for row in new.values() if row["reason"] is None] if self._spec.dedup == "exact" else []
        first: dict[str, str | None] = dict.fromkeys(hashes)
        for batch in self._mapping.batches(self._objects):
            rows = batch.to_pylist()
            for row in rows:
                if row["record_id"] in new:
                    row |= new[row["record_id"]]
                    row["duplicate_of"] = first.get(row["sha256"])
                if row["sha256"] in first and row["reason"] is None:
                    first[row["sha256"]] = first[row["sha256"]] or row["record_id"]
                self._count(row)
            yield pa.RecordBatch.from_pylist(rows, _MAPPING)

    def _count(self, row: dict[str, Any]) -> None:
        if row["reason"]:
            self._faults[row["reason"]] += 1
        self._duplicates += row["duplicate_of"] is not None

    def _unread(self) -> Iterator[PictureRef]:
        for rows, shown in beside(
            self._objects, self._manifest, self._mapping, [*REF_COLUMNS, "reason"], ["record_id", "reason"]
        ):
            reasons = shown["reason"].to_pylist()
            for row, reason in zip(rows.to_pylist(), reasons, strict=True):
                if row["reason"] is None and reason in TRANSIENT_REASONS:
                    yield PictureRef.of(row)

    def _row(self, ref: PictureRef, data: bytes | Fault) -> dict[str, Any]:
        """Every column of its new row."""
        examined = data if isinstance(data, Fault) else examine(data, self._spec, draw=False)
        return dict.fromkeys(_MAPPING.names) | mapping_row(ref, examined, self._spec)
