"""Writing plan files: each whole, once, under the next number."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.sharding import SCHEMA, Shard

GENERATION_ROWS = 2_000_000
"""A generation is closed by the shard that reaches it: it is written from memory, in one put."""
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
        self._writer = pq.ParquetWriter(self._sink, SCHEMA, compression="zstd")
        self._shards: list[tuple[str, int, int | None, tuple[str, ...]]] = []
        self._waiting: list[pa.Table] = []
        self._rows = self._waiting_rows = 0

    def add(self, shard: Shard) -> None:
        """Takes a shard, whose rows carry `number`. Raises GenerationTaken."""
        count = 0
        for rows in shard.rows:
            count += rows.num_rows
            self._waiting.append(rows)
            self._waiting_rows += rows.num_rows
            if self._waiting_rows >= ROW_GROUP_ROWS:
                self._flush()
        self._shards.append((shard.key, count, count if self._kind == "images" else shard.records, shard.replaces))
        self._rows += count
        if self._rows >= GENERATION_ROWS:
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
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0
