"""ImageFolder: pictures as files, and a metadata.jsonl beside them, as `load_dataset("imagefolder", data_dir=…)` reads it."""

from __future__ import annotations

import orjson

from caption_assets.core.exports.job import ShardJob
from caption_assets.core.exports.names import extension, sample_key

_COLUMNS = ["record_id", "id", "uri", "source_uri", "source_index", "record_json"]


def write(job: ShardJob) -> None:
    """`{shard}/{key}.jpg` with the pictures' own bytes, `{shard}/metadata.jsonl`."""
    path, rows = job.target.scratch / "metadata.jsonl", 0
    with open(path, "wb") as file:
        for row, data in job.rows_with_pictures():
            name = f"{sample_key(row['record_id'])}.{extension(row['format'])}"
            job.target.put(f"{job.shard}/{name}", data, 1)
            file.write(orjson.dumps({"file_name": name, **{c: row[c] for c in (*job.outputs, *_COLUMNS)}}) + b"\n")
            rows += 1
    if rows:
        job.target.put_file(f"{job.shard}/metadata.jsonl", path, 0)
