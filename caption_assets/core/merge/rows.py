"""The records of one shard for the merge: their ids and numbers in DuckDB.

A record's number n is its row in the manifest, from 0. Everything wide is kept apart and joined by n; DuckDB holds ids and
numbers only, and spills them to the scratch folder when they pass its memory limit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.core.merge.spill import Ints
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.shardrows import beside
from caption_assets.core.tables import TableHandle, literal_path

MEMORY_LIMIT = "512MB"


@dataclass
class MergeRows:
    """The records in DuckDB: table `rows` (n, record_id, readable, duplicate_of), and view `known` (source, record_id, n) of
    those whose replies count, source 0 being the shard itself and 1… those it replaces.

    copies, firsts: n of each duplicate and n of its first copy.
    """

    objects: ObjectStore
    manifest: TableHandle
    mapping: TableHandle
    connection: duckdb.DuckDBPyConnection
    copies: Ints
    firsts: Ints

    @property
    def count(self) -> int:
        return self.manifest.rows

    @cached_property
    def pictures(self) -> pa.ChunkedArray:
        """The sha256 of each record's picture, by n. Read when first asked for, since few merges need it."""
        pairs = beside(self.objects, self.manifest, self.mapping, ["record_id", "reason"], ["record_id", "sha256"])
        return pa.chunked_array([chunk for _, shown in pairs for chunk in shown["sha256"].chunks], pa.string()).combine_chunks()

    def repeated_ids(self) -> list[str]:
        """Some of the record_ids that stand in the manifest more than once; none in a sound one."""
        (missing,) = self._one("SELECT count(*) - count(DISTINCT hash(record_id)) FROM rows")
        if not missing:
            return []
        found = self.connection.sql("SELECT record_id FROM rows GROUP BY record_id HAVING count(*) > 1 ORDER BY 1 LIMIT 3")
        return [row[0] for row in found.fetchall()]

    def fingerprint(self) -> tuple[int, ...]:
        """Count and sum of hashes of the manifest's record_ids: equal for equal sets of unique ids."""
        return self._one("SELECT count(*), sum(hash(record_id)::HUGEINT) FROM rows")

    def fingerprint_of(self, paths: Sequence[Path]) -> tuple[int, ...]:
        """The same over the record_ids of finished local parquet files together."""
        self.connection.execute(
            "SELECT count(*), sum(hash(record_id)::HUGEINT) FROM read_parquet(?)", [[literal_path(str(path)) for path in paths]]
        )
        return tuple(self.connection.fetchall()[0])

    def _one(self, query: str) -> tuple[int, ...]:
        return tuple(self.connection.sql(query).fetchall()[0])


def load_rows(
    objects: ObjectStore, manifest: TableHandle, mapping: TableHandle, replaced: Sequence[TableHandle], scratch: Path
) -> MergeRows:
    """Reads the ids of a shard; replaced: the mappings of the shards that it replaces. Raises Mismatch."""
    connection = duckdb.connect()
    threads = min(4, os.cpu_count() or 1)
    connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'; SET threads = {threads}; SET enable_progress_bar = false")
    connection.execute("SET temp_directory = '{}'".format(str(scratch).replace("'", "''")))
    connection.execute(
        "CREATE TABLE rows (n BIGINT, record_id VARCHAR, readable BOOLEAN, duplicate_of VARCHAR);"
        "CREATE TABLE older (source INTEGER, record_id VARCHAR, n BIGINT);"
        "CREATE VIEW known AS SELECT 0 AS source, record_id, n FROM rows WHERE readable UNION ALL FROM older"
    )
    start = 0
    for rows, shown in beside(objects, manifest, mapping, ["record_id", "reason"], ["record_id", "reason", "duplicate_of"]):
        readable = pc.and_(pc.is_null(rows["reason"]), pc.is_null(shown["reason"]))
        numbers = pa.array(np.arange(start, start + rows.num_rows))
        columns = [numbers, rows["record_id"], readable, shown["duplicate_of"]]
        connection.register("incoming", pa.table(columns, ["n", "record_id", "readable", "duplicate_of"]))
        connection.execute("INSERT INTO rows FROM incoming")
        start += rows.num_rows
    pairs = connection.sql(
        "SELECT c.n AS copy, f.n AS first FROM rows c JOIN rows f ON f.record_id = c.duplicate_of WHERE c.readable ORDER BY 1"
    ).fetchnumpy()
    found = MergeRows(objects, manifest, mapping, connection, pairs["copy"], pairs["first"])
    for source, handle in enumerate(replaced, 1):
        connection.register("own", pa.table({"n": np.arange(found.count), "sha256": found.pictures}))
        connection.register("incoming", pa.Table.from_batches(handle.batches(objects, ["record_id", "sha256"])))
        connection.execute(
            "INSERT INTO older SELECT ?, record_id, n FROM rows JOIN own USING (n) JOIN incoming USING (record_id, sha256) "
            "WHERE readable",
            [source],
        )
    return found
