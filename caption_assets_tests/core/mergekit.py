"""A small collection with replies written by hand, for tests of what comes after captioning."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.config import Config, DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.merging import Merged, merge_shard
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.pictures.gridding import build_grids
from caption_assets.core.planning import make_plan
from caption_assets.core.prompts import prompt_sha256
from caption_assets.core.recipes import output_recipes
from caption_assets.core.replies.chunks import ChunkWriter, ReplyRow
from caption_assets.core.sources import read_manifest
from caption_assets.core.tables import TableHandle, table, write_parquet
from caption_assets_tests.core.shardkit import jpeg

SMALL_GRID = {"rows": 2, "cols": 2, "cell_size": 32, "gap": 2, "label_font_size": 8}
ONE = {"rows": 1, "cols": 1}
PROMPT = "Describe the picture."


def words(record_id: str) -> str:
    """A caption that no filter minds, different for every record."""
    return f"A wide view over the harbour with boats, gulls and lamps, seen for {record_id}"


@dataclass
class Collection:
    """A dataset below `root`, or below `place` in S3: its source is `source/`. `options` may be changed, as the config may be."""

    root: Path
    options: dict[str, Any] = field(default_factory=dict)
    objects: ObjectStore = field(default_factory=ObjectStore)
    place: str = ""
    _clock: Any = field(default_factory=lambda: itertools.count(1_800_000_000))
    _runs: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def config(self) -> Config:
        place = self.place or self.root
        base = {"name": "photos", "source": f"{place}/source/", "grid": SMALL_GRID, "prompts": [{"text": PROMPT}]}
        engine = {"kind": "openai", "model": "stub", "endpoints": ["http://127.0.0.1:9/v1"]}
        return Config(store=f"{place}/store", engine=engine, datasets=[{**base, **self.options}])

    @property
    def spec(self) -> DatasetConfig:
        return self.config.datasets[0]

    @property
    def layout(self) -> Layout:
        return Layout(self.config.store, "photos")

    @property
    def recipes(self) -> dict[str, str]:
        return output_recipes(self.spec, self.config.engine_of(self.spec), None)

    def add(self, files: Mapping[str, bytes]) -> Collection:
        """Writes source files."""
        for name, data in files.items():
            self.objects.put(f"{self.place or self.root}/source/{name}", data)
        return self

    def prepare(self, accept_changed: str | None = None) -> list[str]:
        """Plans what is new, makes manifest and grids of the new shards, and returns their keys."""
        result = make_plan(self.objects, self.layout, self.spec, accept_changed=accept_changed)
        for shard in result.new_shards:
            stream = read_manifest(self.objects, self.spec, result.plan.entries(shard))
            replaces = result.plan.planned[shard].replaces
            if replaces:
                stream = stream.tagged(replaces=replaces[0])
            manifest = write_parquet(self.objects, self.layout.manifest(shard), stream)
            grids = build_grids(self.objects, self.layout, self.spec, shard, manifest)
            write_parquet(self.objects, self.layout.mapping(shard), grids)
        return result.new_shards

    def manifest(self, shard: str) -> TableHandle:
        return table(self.objects, self.layout.manifest(shard))

    def mapping(self, shard: str) -> TableHandle:
        return table(self.objects, self.layout.mapping(shard))

    def rows(self, uri: str) -> list[dict[str, Any]]:
        return pq.read_table(pa.BufferReader(self.objects.read(uri))).to_pylist()

    def say(self, shard: str, replies: list[ReplyRow]) -> list[str]:
        """Stores replies as the captioning of one run does; their request ids."""
        writer = ChunkWriter(self.objects, self.layout, shard, f"run-{next(self._runs)}", "root")
        for output, rows in itertools.groupby(replies, lambda row: row.output):
            writer.write(output, self.recipes[output], list(rows))
        return [reply.request_id for reply in replies]

    def revoke(self, shard: str, requests: list[str]) -> None:
        ChunkWriter(self.objects, self.layout, shard, "run-x", "root").revoke([(r, "http://liar/v1") for r in requests])

    def reply(self, records: list[str], said: Any, **changes: Any) -> ReplyRow:
        """One reply for these records. said: the reply's text; a dict by slot becomes JSON. One record is a single picture.
        `asked`: the rendered prompts, one for all or a list."""
        number, output = next(self._clock), changes.pop("output", "caption")
        prompt = next(p for p in self.spec.prompts if p.name == output)
        asked = changes.pop("asked", prompt.text)
        asked = [asked] * len(records) if isinstance(asked, str) else asked
        row = ReplyRow(
            request_id=f"request-{number}",
            grid_id=f"grid-{number}" if len(records) > 1 else None,
            slots=list(range(1, len(records) + 1)),
            record_ids=records,
            prompt_sha256s=[prompt_sha256(text) for text in asked],
            output=output,
            recipe=self.recipes[output],
            attempt=1,
            reply=json.dumps(said) if isinstance(said, dict) else said,
            finish_reason="stop",
            error=None,
            prompt_tokens=900,
            completion_tokens=40,
            latency_ms=12.5,
            endpoint="http://127.0.0.1:9/v1",
            model="stub",
            revision=None,
            sent_at=float(number),
            run_id="run-1",
        )
        return row._replace(**changes)

    def caption_all(self, shard: str, text: Callable[[str], str] = words) -> None:
        """A single reply for every record that needs one."""
        rows = self.rows(self.layout.mapping(shard))
        asked = [row["record_id"] for row in rows if row["reason"] is None and row["duplicate_of"] is None]
        self.say(shard, [self.reply([record], text(record)) for record in asked])

    def merge(self, shard: str, publish: bool = True) -> Outcome:
        """Merges the shard and publishes both tables."""
        run_id = f"run-{next(self._runs)}"
        scratch = self.root / "scratch" / run_id
        scratch.mkdir(parents=True)
        merged = merge_shard(
            self.objects,
            self.layout,
            self.spec,
            shard,
            self.recipes,
            self.manifest(shard),
            self.mapping(shard),
            scratch,
            run_id=run_id,
        )
        if publish and not merged.problems:
            self.objects.put_file(self.layout.failed(shard), merged.failed_path)
            self.objects.put_file(self.layout.merged(shard), merged.merged_path)
        return Outcome(self, shard, merged)


@dataclass
class Outcome:
    """What a published merge says."""

    collection: Collection
    shard: str
    result: Merged

    @cached_property
    def merged(self) -> list[dict[str, Any]]:
        return self.collection.rows(self.collection.layout.merged(self.shard))

    @cached_property
    def failed(self) -> list[dict[str, Any]]:
        return self.collection.rows(self.collection.layout.failed(self.shard))

    def texts(self, output: str = "caption") -> dict[str, str | None]:
        return {row["record_id"]: row[output] for row in self.merged}

    def reasons(self) -> dict[str, str]:
        return {row["record_id"]: row["reason"] for row in self.failed}


def one_shard(root: Path, count: int = 4, **options: object) -> tuple[Collection, str]:
    """A collection of `count` different pictures p0.jpg, p1.jpg, … in one shard."""
    collection = Collection(root, {"grid": ONE, **options})
    collection.add({f"p{n}.jpg": jpeg(n) for n in range(count)})
    (shard,) = collection.prepare()
    return collection, shard
