"""The records of one shard: manifest rows with their mapping rows beside them.

A record's number, wherever one is spoken of, is its row in the manifest, from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.tables import TableHandle

BATCH_ROWS = 16_384


class Mismatch(Exception):
    """Manifest and mapping of a shard do not belong together. The message says where."""


def beside(
    objects: ObjectStore,
    manifest: TableHandle,
    mapping: TableHandle,
    manifest_columns: Sequence[str],
    mapping_columns: Sequence[str],
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Manifest rows in order, and beside them the mapping rows of the same records: nulls where the manifest has a fault.

    Needs record_id and reason of the manifest, record_id of the mapping. Raises Mismatch.
    """
    shown = _Rows(objects, mapping, mapping_columns)
    start = 0
    for batch in manifest.batches(objects, list(manifest_columns), BATCH_ROWS):
        rows = pa.Table.from_batches([batch])
        readable = pc.is_null(rows["reason"])
        ids = rows["record_id"].filter(readable)
        found = shown.next(len(ids))
        if found.num_rows < len(ids) or not pc.all(pc.equal(found["record_id"], ids), min_count=0).as_py():
            raise Mismatch(
                f"{mapping.uri} is not the mapping of {manifest.uri}: they differ within the records {start + 1} to "
                f"{start + rows.num_rows}; materialize concat_grids again"
            )
        if len(ids) < rows.num_rows:
            place = pc.subtract(pc.cumulative_sum(pc.cast(readable, pa.int64())), 1)
            found = found.take(pc.if_else(readable, place, None))
        yield rows, found
        start += rows.num_rows
    if shown.next(1).num_rows:
        raise Mismatch(f"{mapping.uri} has more records than {manifest.uri}: materialize concat_grids again")


class _Rows:
    """Rows of a table in order, any number at a time."""

    def __init__(self, objects: ObjectStore, handle: TableHandle, columns: Sequence[str]) -> None:
        self._batches = handle.batches(objects, list(columns), BATCH_ROWS)
        self._waiting = pa.schema([handle.schema.field(name) for name in columns]).empty_table()

    def next(self, count: int) -> pa.Table:
        """The next `count` rows, fewer at the end."""
        while self._waiting.num_rows < count and (batch := next(self._batches, None)) is not None:
            self._waiting = pa.concat_tables([self._waiting, pa.Table.from_batches([batch])])
        rows, self._waiting = self._waiting.slice(0, count), self._waiting.slice(count)
        return rows
