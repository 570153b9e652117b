"""A Hugging Face dataset folder: parquet with the pictures inside, opened by `datasets.load_dataset(folder)`."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.core.exports.job import ShardJob
from caption_assets.core.exports.names import extension, sample_key

ROWS_AT_A_TIME = 100
"""Rows of a row group: so few that a reader of a single one does not read much."""
FILE_BYTES = 500 << 20
_COLUMNS = [
    "record_id",
    "id",
    "uri",
    "width",
    "height",
    "format",
    "file_bytes",
    "sha256",
    "source_uri",
    "source_index",
    "record_json",
]
CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
---
Made by caption-assets.
"""


def write(job: ShardJob) -> None:
    """`data/{shard}-00000.parquet` and on, of about FILE_BYTES each, and the card README.md."""
    schema = _schema(job)
    files = _Files(job, schema)
    pending: list[dict[str, Any]] = []
    for row, data in job.rows_with_pictures():
        name = f"{sample_key(row['record_id'])}.{extension(row['format'])}"
        pending.append({"image": {"bytes": data, "path": name}, **{c: row[c] for c in schema.names[1:]}})
        if len(pending) == ROWS_AT_A_TIME:
            files.write(pending)
            pending = []
    files.write(pending)
    files.close()
    job.objects.put(f"{job.target.folder}README.md", CARD.encode())


def _schema(job: ShardJob) -> pa.Schema:
    own = [job.merged.schema.field(name) for name in (*_COLUMNS[:3], *job.outputs, *_COLUMNS[3:])]
    features = {"image": {"_type": "Image"}, **{f.name: {"dtype": str(f.type), "_type": "Value"} for f in own}}
    image = pa.field("image", pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    return pa.schema([image, *own], metadata={"huggingface": json.dumps({"info": {"features": features}})})


class _Files:
    """Parquet files of bounded size, one after the other."""

    def __init__(self, job: ShardJob, schema: pa.Schema) -> None:
        self._job, self._schema = job, schema
        self._number = -1
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        if self._writer is None:
            self._number, self._rows, self._size = self._number + 1, 0, 0
            self._path = self._job.target.scratch / "part.parquet"
            codecs = dict.fromkeys(self._schema.names[1:], "zstd") | {"image.bytes": "none", "image.path": "zstd"}
            self._writer = pq.ParquetWriter(self._path, self._schema, compression=codecs)
        self._writer.write_table(pa.Table.from_pylist(rows, self._schema))
        self._rows += len(rows)
        self._size += sum(len(row["image"]["bytes"]) for row in rows)
        if self._size >= FILE_BYTES:
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._job.target.put_file(f"data/{self._job.shard}-{self._number:05d}.parquet", self._path, self._rows)
