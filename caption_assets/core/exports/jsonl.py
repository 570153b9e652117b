"""JSON lines: one object per record, one file per shard."""

from __future__ import annotations

from caption_assets.core.exports.job import ShardJob


def write(job: ShardJob) -> None:
    """`{shard}.jsonl`."""
    path, rows = job.target.scratch / "rows.jsonl", 0
    with open(path, "wb") as file:
        for rows, row in enumerate(job.rows(), 1):  # noqa: B007
            file.write(job.as_json(row) + b"\n")
    job.target.put_file(f"{job.shard}.jsonl", path, rows)
