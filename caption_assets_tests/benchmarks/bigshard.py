"""A captioned shard of any size, made by script: manifest, mapping and reply chunks as the program writes them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.config import DatasetConfig
from caption_assets.core.columns import CAPTIONS, FAILED, MANIFEST, MAPPING, merged_columns
from caption_assets.core.layout import Layout
from caption_assets.core.prompts import prompt_sha256
from caption_assets.core.replies.chunks import write_chunk
from caption_assets.core.tables import arrow_schema

SHARD = "part"
RECIPE = "0123456789abcdef"
PROMPT = "Describe the picture in one or two sentences."
PART = 20_000
_WORDS = {
    "noun": "woman man child dog cat horse cyclist fisherman waiter nurse lorry tram canoe lighthouse bakery market stall bench "
    "staircase fountain tower windmill greenhouse kitchen library workshop harbour meadow orchard railway platform bridge attic",
    "look": "red narrow weathered bright wooden crowded quiet tall striped rusty green glossy old snow-covered sunlit blue dusty "
    "modern half-open round small grey yellow steep flooded painted",
    "deed": "leaning_against walking_past standing_beside looking_towards carrying_something_across resting_under waiting_behind "
    "painting photographing sweeping crossing",
    "place": "on_a_foggy_morning under_a_clear_sky late_in_the_evening in_heavy_rain during_a_street_festival in_early_spring "
    "with_mountains_in_the_distance seen_from_a_low_angle in_the_last_light_of_the_day before_a_brick_wall",
}
_CHOICE = {kind: [word.replace("_", " ") for word in words.split()] for kind, words in _WORDS.items()}


def caption(chance: random.Random) -> str:
    """About 180 characters, as models describe photographs."""
    a, b, c, d = chance.sample(_CHOICE["noun"], 4)
    u, v, w, x = chance.sample(_CHOICE["look"], 4)
    deed, place = chance.choice(_CHOICE["deed"]), chance.choice(_CHOICE["place"])
    first = f"A {u} photograph of a {a} {deed} a {v} {b}, {place}."
    return f"{first} The {c} to the left is {w}, while the {d} behind it appears {x} and slightly out of focus."


def spec(cells: int) -> DatasetConfig:
    """The dataset of such a shard; cells: 1, or the cells of its grids."""
    return DatasetConfig(
        name="photos",
        source=["/source/"],
        prompts=[{"text": PROMPT}],
        grid={"rows": 1, "cols": cells},  # type: ignore[list-item, arg-type]
    )


def make_shard(layout: Layout, records: int, cells: int, rows_per_chunk: int = 1000) -> None:
    """One in 50 records is a duplicate of the one before, one in 200 has a broken picture."""
    manifest, mapping = _Table(layout.manifest(SHARD), MANIFEST), _Table(layout.mapping(SHARD), MAPPING)
    chunks = _Chunks(Path(layout.chunks_folder(SHARD, "caption", RECIPE)), rows_per_chunk)
    chance = random.Random(1)
    waiting: list[dict[str, Any]] = []
    for start in range(0, records, PART):
        numbers = range(start, min(records, start + PART))
        manifest.write([_manifest_row(n) for n in numbers])
        shown = [_mapping_row(n) for n in numbers]
        for row in shown:
            if row["reason"] is None and row["duplicate_of"] is None:
                waiting.append(row)
                if cells > 1:
                    row |= {"grid_id": f"grid-{chunks.requests:08d}", "slot": len(waiting)}
                if len(waiting) == cells:
                    chunks.add(_reply(chunks.requests, waiting, chance))
                    waiting = []
        if numbers[-1] == records - 1 and waiting:
            chunks.add(_reply(chunks.requests, waiting, chance))
        mapping.write(shown)
    for table in (manifest, mapping, chunks):
        table.close()


def make_merged(layout: Layout, shard: str, records: int, version: str = "version") -> None:
    """The pair of tables of one merged shard."""
    chance, metadata = random.Random(3), {"run_id": "run", "dataset_recipe": RECIPE, "data_version": version, "shard": shard}
    merged, failed = _Table(layout.merged(shard), merged_columns(["caption"])), _Table(layout.failed(shard), FAILED)
    for start in range(0, records, PART):
        rows = []
        for n in range(start, min(records, start + PART)):
            row = _manifest_row(n) | _mapping_row(n) | {"record_id": f"{shard}/{_record_id(n)}", "caption_reason": None}
            info = {**_reply(n, [row], chance), "captioned_at": 1_800_000_000_000_000 + n}
            rows.append({**row, "caption": info["reply"], "caption_info": info})
        merged.write([row for row in rows if row["reason"] is None])
        failed.write([{**row, "retryable": False, "attempt": 0} for row in rows if row["reason"]])
    merged.close(metadata)
    failed.close(metadata)


def _record_id(n: int) -> str:
    return f"part-{n // 10_000:05d}.tar#{n:09d}.jpg"


def _manifest_row(n: int) -> dict[str, Any]:
    record = _record_id(n)
    fields = {
        "id": n,
        "caption": "alternative text of the page it was found on",
        "url": f"https://example.com/a/{n}.jpg",
        "width": 640,
    }
    return {
        "record_id": record, "id": f"{n:09d}", "uri": f"s3://bucket/photos/{record}",
        "source_uri": f"s3://bucket/photos/part-{n // 10_000:05d}.tar", "source_index": n % 10_000 + 1,
        "record_json": orjson.dumps(fields).decode(), "byte_offset": n * 60_000, "byte_length": 60_000,
        "reason": None, "detail": None,
    }  # fmt: skip


def _mapping_row(n: int) -> dict[str, Any]:
    copy, broken = n % 50 == 49, n % 200 == 100
    picture = hashlib.sha256(str(n - copy).encode()).hexdigest()
    row = dict.fromkeys((column.name for column in MAPPING), None) | {
        "record_id": _record_id(n), "sha256": picture, "file_bytes": 60_000, "byte_offset": n * 60_000, "byte_length": 60_000,
    }  # fmt: skip
    if broken:
        return row | {"reason": "decode_error", "detail": "broken data stream"}
    return row | {"width": 640, "height": 480, "format": "jpeg", "duplicate_of": _record_id(n - 1) if copy else None}


def _reply(number: int, rows: list[dict[str, Any]], chance: random.Random) -> dict[str, Any]:
    slots = list(range(1, len(rows) + 1))
    said = caption(chance) if len(rows) == 1 else orjson.dumps({str(slot): caption(chance) for slot in slots}).decode()
    return {
        "request_id": f"request-{number:012d}", "grid_id": rows[0].get("grid_id"), "slots": slots,
        "record_ids": [row["record_id"] for row in rows], "prompt_sha256s": [prompt_sha256(PROMPT)] * len(rows),
        "output": "caption", "recipe": RECIPE, "attempt": 1, "reply": said, "finish_reason": "stop", "error": None,
        "prompt_tokens": 900, "completion_tokens": 220, "latency_ms": 1000 + 500 * chance.random(),
        "endpoint": f"http://host{number % 8}:8000/v1",
        "model": "Qwen/Qwen2.5-VL-3B-Instruct", "revision": "66285546d2b821cf421d4f5eb2576359d3770cd3",
        "sent_at": 1_800_000_000_000_000 + 1000 * number, "run_id": "11111111-2222-3333-4444-555555555555",
    }  # fmt: skip


class _Table:
    def __init__(self, uri: str, columns: Any) -> None:
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        self._schema = arrow_schema(columns)
        self._writer = pq.ParquetWriter(uri, self._schema, compression="zstd")

    def write(self, rows: list[dict[str, Any]]) -> None:
        self._writer.write_table(pa.Table.from_pylist(rows, self._schema))

    def close(self, metadata: dict[str, str] | None = None) -> None:
        if metadata:
            self._writer.add_key_value_metadata(metadata)
        self._writer.close()


class _Chunks:
    """Chunks with their rows in the order in which replies come: about that of asking."""

    def __init__(self, folder: Path, rows: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._size, self._names = folder, rows, self._name()
        self._schema = arrow_schema(CAPTIONS)
        self._rows: list[dict[str, Any]] = []
        self._chance = random.Random(2)
        self.requests = 0

    def _name(self) -> Iterator[str]:
        number = 0
        while True:
            yield f"run-abcdef01-{number:05d}.parquet"
            number += 1

    def add(self, row: dict[str, Any]) -> None:
        self.requests += 1
        self._rows.append(row)
        if len(self._rows) == self._size:
            self.close()

    def close(self) -> None:
        if self._rows:
            self._chance.shuffle(self._rows)
            write_chunk(pa.Table.from_pylist(self._rows, self._schema), self._folder / next(self._names))
            self._rows = []
