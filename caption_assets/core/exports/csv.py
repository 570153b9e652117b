"""CSV in UTF-8 with a header, one file per shard."""

from __future__ import annotations

import csv
from typing import Any

from caption_assets.core.exports.job import HEAD, TAIL, ShardJob

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def write(job: ShardJob) -> None:
    """`{shard}.csv`. With csv_safe an apostrophe stands before text that a spreadsheet would take for a formula."""
    names = [*HEAD, *job.outputs, *TAIL, "record_json"]
    path, rows = job.target.scratch / "rows.csv", 0
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for rows, row in enumerate(job.rows(), 1):  # noqa: B007
            writer.writerow([_safe(row[name]) if job.options.csv_safe else row[name] for name in names])
    job.target.put_file(f"{job.shard}.csv", path, rows)


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
