"""Lance: one dataset `captions.lance` with the pictures inside; a shard's rows are taken out and put in again when it changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from caption_assets.core.exports.job import ShardJob
from caption_assets.core.exports.selection import ExportError
from caption_assets.core.exports.target import file_sha256, note_uri

ROWS_AT_A_TIME = 100
NAME = "captions.lance"


def write(job: ShardJob) -> None:
    """Rows with `shard`, `image` (the picture's own bytes) and the columns of merged."""
    lance = _library()
    if "://" in job.target.folder:
        raise ExportError("lance is written to a local folder: copy it to S3 when it is done")
    uri, before = f"{job.target.folder}{NAME}", set()
    job.objects.delete(note_uri(job.target.folder, job.shard))  # from here on the shard is not in it, should this be killed
    if Path(uri).exists():
        old = lance.dataset(uri)
        old.delete(f"shard = '{job.shard}'")
        before = {fragment.fragment_id for fragment in old.get_fragments()}
    names = job.columns()
    schema = pa.schema(
        [pa.field("shard", pa.string()), pa.field("image", pa.large_binary()), *(job.merged.schema.field(n) for n in names)]
    )
    reader = pa.RecordBatchReader.from_batches(schema, _batches(job, names, schema))
    dataset = lance.write_dataset(reader, uri, schema=schema, mode="append" if before or Path(uri).exists() else "create")
    dataset.cleanup_old_versions(older_than=timedelta(0))
    for fragment in dataset.get_fragments():
        if fragment.fragment_id not in before:
            for number, file in enumerate(fragment.data_files()):
                path = Path(uri) / "data" / file.path
                rows = fragment.count_rows() if number == 0 else 0
                job.target.add(f"{NAME}/data/{file.path}", path.stat().st_size, file_sha256(path), rows)


def fault(folder: str, shard: str, records: int) -> str | None:
    """What is wrong with a shard's rows as Lance reads them, whose deletions and versions lie in files of its own."""
    lance = _library()
    try:
        found = lance.dataset(f"{folder}{NAME}").count_rows(f"shard = '{shard}'")
    except (OSError, ValueError, RuntimeError) as error:
        return f"{folder}{NAME}: Lance cannot read it: {str(error)[:200]}"
    return None if found == records else f"{folder}{NAME}: Lance reads {found} rows of {shard}, not {records}"


def _library() -> Any:
    try:
        import lance
    except ImportError:
        raise ExportError("the format lance needs pylance: pip install 'caption-assets[lance]'") from None
    return lance


def _batches(job: ShardJob, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    pending: list[dict[str, Any]] = []
    for row, data in job.rows_with_pictures():
        pending.append({"shard": job.shard, "image": data, **{name: row[name] for name in names}})
        if len(pending) == ROWS_AT_A_TIME:
            yield pa.RecordBatch.from_pylist(pending, schema)
            pending = []
    if pending:
        yield pa.RecordBatch.from_pylist(pending, schema)
