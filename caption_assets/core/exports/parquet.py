"""Parquet: the rows of merged as they are, one file per shard."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.core.exports.job import ShardJob


def write(job: ShardJob) -> None:
    """`data/{shard}.parquet`."""
    names = job.columns()
    schema = pa.schema([job.merged.schema.field(name) for name in names])
    path, rows = job.target.scratch / "table.parquet", 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in job.tables():
            rows += table.num_rows
            writer.write_table(table.select(names).cast(schema))
    job.target.put_file(f"data/{job.shard}.parquet", path, rows)
