"""Writing plan files: each whole, once, under the next number."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.sharding import SCHEMA, Row, Shard, rows_table
from caption_assets.core.tables import WITH_SUMS

GENERATION_ROWS = 2_000_000
"""A generation ends when it has so many: it is written from memory, in one put."""
GENERATION_S = 300.0
"""It also ends after so long: planning a terabyte of catalogs takes hours, and what was read is not read again after a kill."""
ROW_GROUP_ROWS = 32_000


class GenerationTaken(Exception):
    """Somebody else wrote the generation in the meantime; nothing was written."""


class GenerationWriter:
    """Shards of one kind into generations from `number` on. Call close at the end."""

    def __init__(self, objects: ObjectStore, layout: Layout, number: int, kind: str, kinds: dict[str, str]) -> None:
        self.number = number
        self._objects, self._layout, self._kind, self._kinds = objects, layout, kind, kinds
        self._begin()

    def _begin(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, SCHEMA, compression="zstd", **WITH_SUMS)
        self._shards: list[tuple[str, int, int | None, tuple[str, ...]]] = []
        self._waiting: list[pa.Table] = []
        self._pieces: list[Row] = []
        self._rows = self._waiting_rows = 0
        self._begun = time.monotonic()

    def add(self, shard: Shard) -> None:
        """Takes a shard, whose rows carry `number`. Raises GenerationTaken."""
        count = 0
        for rows in shard.rows:
            if isinstance(rows, tuple):
                self._pieces.append(rows)
                added = 1
            else:
                self._waiting.append(rows)
                added = rows.num_rows
            count += added
            self._waiting_rows += added
            if self._waiting_rows >= ROW_GROUP_ROWS:
                self._flush()
        self._shards.append((shard.key, count, count if self._kind == "images" else shard.records, shard.replaces))
        self._rows += count

    def between_files(self) -> None:
        """Closes the generation when it is due. Said only where the next shard begins with the beginning of a file: a file is
        planned when a generation has it, so that the parts of one must not be cut off from each other. Raises GenerationTaken."""
        if self._rows >= GENERATION_ROWS or time.monotonic() - self._begun >= GENERATION_S:
            self.close()

    def close(self) -> None:
        """Publishes what was added since the last generation, if anything was."""
        if not self._shards:
            return
        self._flush()
        texts = {"kind": self._kind, "kinds": json.dumps(self._kinds), "shards": json.dumps(self._shards)}
        self._writer.add_key_value_metadata(texts)
        self._writer.close()
        if not self._objects.put_new(self._layout.plan(self.number), self._sink.getvalue().to_pybytes()):
            raise GenerationTaken
        self.number += 1
        self._begin()

    def _flush(self) -> None:
        if self._pieces:  # a generation is of one kind: of pieces, or of tables
            self._waiting.append(rows_table(self._pieces))
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._pieces, self._waiting_rows = [], [], 0
