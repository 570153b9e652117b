"""Parquet in and out: streams of record batches published whole, and light handles that are scanned, never loaded."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.core.columns import INFO_FIELDS, Column
from caption_assets.core.damage import Damaged
from caption_assets.core.objectstore import NotAFile, ObjectStore, scratch_dir

ROW_GROUP_ROWS = 20_000
WITH_SUMS: dict[str, bool] = {"write_page_checksum": True}
"""How every table of the store is written: of single bytes that a disk changes, a seventh would else be read as other text."""


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type a Column names."""
    if name == "info":
        return pa.struct([pa.field(c.name, arrow_type(c.type)) for c in INFO_FIELDS])
    if name.startswith("list<"):
        return pa.list_(arrow_type(name[5:-1]))
    if name.startswith("timestamp"):
        return pa.timestamp("us", tz="UTC")
    return pa.type_for_alias(name)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(c.name, arrow_type(c.type)) for c in columns])


@dataclass
class RecordStream:
    """A table on its way to a parquet file: batches in order. `metadata` and `summary` are called after the last batch:
    strings for the parquet file, and figures for whoever materializes it."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    metadata: Callable[[], dict[str, str]] = field(default=dict)
    summary: Callable[[], dict[str, Any]] = field(default=dict)

    def tagged(self, **metadata: str) -> RecordStream:
        """The same stream with further strings in the parquet metadata."""
        return replace(self, metadata=lambda: {**self.metadata(), **metadata})

    def file_metadata(self) -> dict[str, str]:
        """What the finished file carries: its metadata, and its summary so that it can be told again from the store alone."""
        return {**self.metadata(), "summary": json.dumps(self.summary(), default=str)}


@dataclass(frozen=True)
class TableHandle:
    """A published parquet file: where it lies, its schema and row count. Rows are read in batches."""

    uri: str
    schema: pa.Schema
    rows: int

    @property
    def metadata(self) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in (self.schema.metadata or {}).items()}

    @property
    def summary(self) -> dict[str, Any]:
        """The figures of the stream that made it."""
        return dict(json.loads(self.metadata.get("summary", "{}")))

    def batches(self, objects: ObjectStore, columns: list[str] | None = None, rows: int = 4096) -> Iterator[pa.RecordBatch]:
        """All rows in order, at most `rows` a batch; memory stays at about one row group."""
        with own_table(objects, self.uri) as file:
            yield from file.iter_batches(batch_size=rows, columns=columns)


def open_parquet(objects: ObjectStore, uri: str, buffer_size: int = 0, sums: bool = False) -> pq.ParquetFile:
    """A parquet file for reading in parts. Local files are read in place; others through ranged reads.

    buffer_size: bytes of a column that are read at once; 0 reads a row group's whole column, which is best for small values.
    sums: whether the checksums of its pages are looked at.
    """
    options: dict[str, Any] = {"buffer_size": buffer_size, "page_checksum_verification": sums}
    if "://" not in uri:
        objects.open(uri).close()  # says what is missing, and that a named pipe is no file
        return pq.ParquetFile(uri, memory_map=False, **options)
    from caption_assets.core.storage.ranged import RangedFile

    return pq.ParquetFile(RangedFile(objects, uri), pre_buffer=False, **options)


class DamagedTable(Damaged):
    """A table of the store that is not as it was written."""

    def __init__(self, uri: str, why: object) -> None:
        again = "`caption-assets reconcile` and `caption-assets run` make it again from what is there"
        super().__init__(uri, why, f"if it is none of plan/, remove it; then {again}")


@contextmanager
def own_table(objects: ObjectStore, uri: str) -> Iterator[pq.ParquetFile]:
    """A table that this program wrote, for reading in parts. Raises DamagedTable where it is not as it was written."""
    try:
        with open_parquet(objects, uri, sums=True) as file:
            yield file
    except (pa.ArrowInvalid, NotAFile) as error:
        raise DamagedTable(uri, error) from error
    except OSError as error:
        if error.errno is None:  # the parquet library's own; the system's have a number
            raise DamagedTable(uri, error) from error
        raise


def table(objects: ObjectStore, uri: str) -> TableHandle:
    """The handle of a published table. Raises ObjectMissing where there is none."""
    with own_table(objects, uri) as file:
        # What is added after the last row stands in the footer only, not in the schema that Arrow stores there.
        metadata = {k: v for k, v in (file.metadata.metadata or {}).items() if k != b"ARROW:schema"}
        return TableHandle(uri, file.schema_arrow.with_metadata(metadata or None), file.metadata.num_rows)


def write_parquet(objects: ObjectStore, uri: str, stream: RecordStream, row_group_rows: int = ROW_GROUP_ROWS) -> TableHandle:
    """Writes the stream to local scratch and publishes the file whole under its final name; nothing appears when it fails."""
    with tempfile.TemporaryDirectory(prefix="caption-assets-", dir=scratch_dir()) as folder:
        path = Path(folder) / "table.parquet"
        rows = write_local(path, stream, row_group_rows)
        objects.put_file(uri, path)
    return TableHandle(uri, stream.schema.with_metadata(stream.file_metadata()), rows)


def write_local(path: Path, stream: RecordStream, row_group_rows: int = ROW_GROUP_ROWS) -> int:
    """Writes the stream to a local file and returns its row count; batches are gathered into full row groups."""
    rows, waiting, pending = 0, 0, []
    with pq.ParquetWriter(path, stream.schema, compression="zstd", write_statistics=True, **WITH_SUMS) as writer:
        for batch in stream.batches:
            rows += batch.num_rows
            waiting += batch.num_rows
            pending.append(batch)
            if waiting >= row_group_rows:
                writer.write_table(pa.Table.from_batches(pending, stream.schema), row_group_size=row_group_rows)
                pending, waiting = [], 0
        if pending:
            writer.write_table(pa.Table.from_batches(pending, stream.schema), row_group_size=row_group_rows)
        writer.add_key_value_metadata(stream.file_metadata())
    return rows


def batches_of(rows: Iterator[dict[str, Any]], schema: pa.Schema, size: int = 2048) -> Iterator[pa.RecordBatch]:
    """Gathers dicts into record batches of at most `size` rows."""
    pending: list[dict[str, Any]] = []
    for row in rows:
        pending.append(row)
        if len(pending) >= size:
            yield pa.RecordBatch.from_pylist(pending, schema)
            pending = []
    if pending:
        yield pa.RecordBatch.from_pylist(pending, schema)


def parquet_bytes(table: pa.Table) -> bytes:
    """A small table as the bytes of a parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", **WITH_SUMS)
    return sink.getvalue().to_pybytes()


def literal_path(path: str) -> str:
    """A path for DuckDB's readers of files, which take every path for a pattern."""
    return re.sub(r"[\[*?]", r"[\g<0>]", path)
