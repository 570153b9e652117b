"""A bounded look at a source, through the same readers as a run: its first objects, and the first records of its first file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO

from caption_assets.config import DatasetConfig, S3Config
from caption_assets.core.faults import Fault
from caption_assets.core.grids import compose
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectInfo, ObjectStore
from caption_assets.core.pictures.examining import Examined, examine
from caption_assets.core.plan.plans import PlanEntry, load_plan
from caption_assets.core.planning import kinds_of_sources, planned_kind, source_files
from caption_assets.core.sources import read_manifest
from caption_assets.core.sources.pictures import PictureRef, Pictures
from caption_assets.core.tables import open_parquet

OBJECTS = 1_000
"""Objects listed at most, of each source: one page of S3."""
BYTES = 4 << 20
"""Of the first tar or catalog."""
ROWS = 2_000
PICTURES = 8


class Bounded(ObjectStore):
    """The object store as far as a glimpse reads: lists `OBJECTS`, streams `BYTES`. more: a listing had further objects."""

    def __init__(self, s3: S3Config) -> None:
        super().__init__(s3)
        self.more = False

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for number, info in enumerate(super().list(prefix, start_after)):
            if number == OBJECTS:
                self.more = True
                return
            yield info

    def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        return super().open(uri, offset, BYTES if length is None else min(length, BYTES))


@dataclass
class Glimpse:
    """kinds: the formats found; files, bytes: of these kinds, as far as listed (`more`: there are further objects); first: the
    first file; records: read of it, `bytes_each` of the source for each; grid_bytes: of a real grid, per picture, None where
    none could be drawn or none is made; record_bytes: of the original record; faults: the first records that cannot be read."""

    kinds: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    more: bool = False
    first: ObjectInfo | None = None
    names: list[str] = field(default_factory=list)
    records: int = 0
    bytes_each: float = 0.0
    record_bytes: float = 0.0
    grid_bytes: float | None = None
    looked_at: int = 0
    faults: list[str] = field(default_factory=list)
    missing_libraries: bool = False

    @property
    def all_records(self) -> int | None:
        """About how many records the source holds; None where it was not listed to its end."""
        if self.more or not self.bytes_each:
            return None
        return self.files if self.kinds == ["images"] else round(self.bytes / self.bytes_each)


def look(s3: S3Config, layout: Layout, spec: DatasetConfig) -> Glimpse:
    """Raises PlanError for a source that is empty, missing or of no known format, ObjectError when the store fails."""
    objects, glimpse = Bounded(s3), Glimpse()
    first: list[ObjectInfo] = []
    for kind, sources in kinds_of_sources(objects, layout, spec, load_plan(ObjectStore(s3), layout)).items():
        glimpse.kinds.append(planned_kind(kind))
        for info in islice(source_files(objects, layout, sources, kind, Counter()), OBJECTS):
            if len(first) < (PICTURES if glimpse.kinds == ["images"] else 1):
                first.append(info)
            glimpse.files += 1
            glimpse.bytes += info.size
            glimpse.names.append(info.uri)
    glimpse.more = objects.more
    if first:
        glimpse.first = first[0]
        rows = _first_rows(objects, spec, first, glimpse)
        _read_pictures(ObjectStore(s3), spec, rows, glimpse)
    return glimpse


def _first_rows(objects: Bounded, spec: DatasetConfig, first: list[ObjectInfo], glimpse: Glimpse) -> list[dict[str, Any]]:
    """Manifest rows of the first pictures, or of the beginning of the first tar or catalog; what is cut off there is no fault."""
    kind, info = glimpse.kinds[0], first[0]
    count, whole = None, info.size <= BYTES
    if kind == "parquet":
        with open_parquet(objects, info.uri) as file:
            total = file.metadata.num_rows
        count, whole = min(total, PICTURES), True
        glimpse.bytes_each = info.size / max(1, total)
    elif kind == "images":
        count, whole = 1, True
    entries = [PlanEntry("", i.uri, kind, 0, count, 0, min(i.size, BYTES), i.size, i.etag, 0, None) for i in first]
    rows: list[dict[str, Any]] = []
    for batch in read_manifest(objects, spec, entries).batches:
        rows += batch.to_pylist()
        if len(rows) > ROWS:
            whole = False
            break
    if not whole and len(rows) > 1:
        del rows[-1]
    glimpse.records = len(rows)
    if kind != "parquet" and rows:
        glimpse.bytes_each = info.size if kind == "images" else _reach(rows, min(info.size, BYTES)) / len(rows)
    texts = [len(row["record_json"] or "") for row in rows]
    glimpse.record_bytes = sum(texts) / max(1, len(texts))
    return rows


def _reach(rows: list[dict[str, Any]], bytes_read: int) -> int:
    """Up to which byte these rows are; all that was read, where they do not say so."""
    return max(((row["byte_offset"] or 0) + (row["byte_length"] or 0) for row in rows), default=0) or bytes_read


def _read_pictures(objects: ObjectStore, spec: DatasetConfig, rows: list[dict[str, Any]], glimpse: Glimpse) -> None:
    """Reads and decodes the first pictures, and draws one grid of them."""
    draw, cells = not spec.grid.single, []
    some = rows[:PICTURES]
    glimpse.looked_at = len(some)
    glimpse.faults = [f"{row['record_id']}: {row['reason']}: {row['detail']}" for row in some if row["reason"]]
    refs = [PictureRef.of(row) for row in some if not row["reason"]]
    for ref, data in Pictures(objects, spec).stream(refs):
        seen = data if isinstance(data, Fault) else examine(data, spec, draw=draw)
        fault = seen.fault if isinstance(seen, Examined) else seen
        if fault:
            glimpse.faults.append(f"{ref.record_id}: {fault.reason}: {fault.detail}")
            glimpse.missing_libraries |= "needs a library" in fault.detail
        elif isinstance(seen, Examined) and seen.cell is not None:
            cells.append(seen.cell)
    cells = cells[: spec.grid.rows * spec.grid.cols]
    if cells:
        glimpse.grid_bytes = len(compose(cells, spec.grid)) / len(cells)
