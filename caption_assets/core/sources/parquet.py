"""Manifest rows of parquet files: pictures as bytes, as Hugging Face structs {bytes, path}, or as addresses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from caption_assets.config import FieldsConfig
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.plans import PlanEntry
from caption_assets.core.prompts import lookup
from caption_assets.core.sources.jsonl import picture_uri
from caption_assets.core.sources.names import safe_text
from caption_assets.core.sources.rowjson import Row, plain_rows
from caption_assets.core.sources.rows import Rows, Tally, fault_place
from caption_assets.core.tables import open_parquet

ROWS = 512
PICTURES = 32
BUFFER = 4 << 20
"""Bytes of a column in memory at once: a row group's pictures may be gigabytes."""
DETAIL_CHARS = 500
UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""What the parquet library raises for damaged files."""

_PICTURE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp", "picture", "photo")


@dataclass(frozen=True)
class PictureColumn:
    """Where a parquet file holds its pictures. name: the dotted field; leaf: the column of bytes, None where there is none;
    wide: every column of bytes of pictures (and other media), which row data leaves out."""

    name: str
    leaf: str | None
    wide: frozenset[str]


def picture_column(file: pq.ParquetFile, fields: FieldsConfig) -> PictureColumn:
    """The field `fields.uri`; where the file has none such, a column that is or is named like a picture."""
    leaves = [file.schema.column(i).path for i in range(len(file.schema))]
    media = frozenset(leaf for leaf in leaves if leaf.endswith(".bytes") and f"{leaf[:-5]}path" in leaves)
    schema = file.schema_arrow
    names = [fields.uri] if _type_at(schema, fields.uri) is not None else _guesses(schema)
    for name in names:
        kind = _type_at(schema, name)
        if kind is not None and _is_binary(kind):
            return PictureColumn(name, name, media | {name})
        if kind is not None and pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            return PictureColumn(name, f"{name}.bytes", media | {f"{name}.bytes"})
    return PictureColumn(names[0] if names else fields.uri, None, media)


def read_rows(objects: ObjectStore, fields: FieldsConfig, entry: PlanEntry, path: str, tally: Tally) -> Iterator[pa.RecordBatch]:
    """The rows of one planned range. Each row that cannot be read has its own fault; a file that cannot be opened, one in all."""
    rows = Rows(tally)
    uri = safe_text(entry.source_uri)
    try:
        file = open_parquet(objects, entry.source_uri, BUFFER)
        column = picture_column(file, fields)
        if entry.count is None:
            raise ValueError("it says of itself what cannot be")
    except UNREADABLE as error:
        record_id, index = fault_place(path, entry.start)
        detail = safe_text(f"{path}: not a parquet file that can be read: {error}")[:DETAIL_CHARS]
        rows.add(record_id, None, uri, uri, index, reason="truncated_shard", detail=detail)
        yield rows.take()
        return
    with file:
        for group, first, last in _groups(file, entry.start, entry.start + entry.count):
            number, why = max(first, entry.start), "fewer rows than the file says"
            try:
                for number, row, embedded in _values(file, column, group, first, entry.start, last):
                    _add(rows, fields, column, f"{path}#{number}", number, uri, row, embedded)
                    if rows.full:
                        yield rows.take()
            except UNREADABLE as error:
                why = str(error)
            for lost in range(number + 1, last + 1):
                detail = safe_text(f"row {lost} cannot be read: {why}")[:DETAIL_CHARS]
                rows.add(f"{path}#{lost}", None, None, uri, lost, reason="truncated_shard", detail=detail)
                if rows.full:
                    yield rows.take()
    yield rows.take()


def picture_bytes(file: pq.ParquetFile, column: PictureColumn, group: int) -> Iterator[bytes | None]:
    """The pictures of one row group in order, a few in memory at a time."""
    for batch in file.iter_batches(batch_size=PICTURES, row_groups=[group], columns=[column.leaf], use_threads=False):
        array = batch.column(0)
        for step in (column.leaf or "").split(".")[1:] if pa.types.is_struct(array.type) else ():
            array = pc.struct_field(array, step)
        yield from (None if value is None else bytes(value) for value in array.to_pylist())


def _groups(file: pq.ParquetFile, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The row groups that have rows of the range [start, end): number, first row, and the row after the last wanted one."""
    first = 0
    for group in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if first < end and first + rows > start:
            yield group, first, min(first + rows, end)
        first += rows


def _values(
    file: pq.ParquetFile, column: PictureColumn, group: int, first: int, start: int, last: int
) -> Iterator[tuple[int, Row, bool]]:
    """Rows of one group behind `start` up to `last`: the number from 1, the values, and whether the picture is in the file."""
    leaves = [path for i in range(len(file.schema)) if (path := file.schema.column(i).path) not in column.wide]
    rows = file.metadata.row_group(group).num_rows
    embedded = _embedded(file, column, group, rows)
    number = first
    for batch in _batches(file, group, leaves, rows):
        for row, inside in zip(plain_rows(batch), embedded, strict=False):
            number += 1
            if number > last:
                return
            if number > start:
                yield number, row, inside


def _batches(file: pq.ParquetFile, group: int, leaves: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    if leaves:
        yield from file.iter_batches(batch_size=ROWS, row_groups=[group], columns=leaves, use_threads=False)
        return
    empty = pa.schema([])
    while rows > 0:
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * min(rows, ROWS), pa.struct(empty)))
        rows -= ROWS


def _embedded(file: pq.ParquetFile, column: PictureColumn, group: int, rows: int) -> Iterator[bool]:
    """Whether each row's picture is there: from the statistics where they say so, else by reading the column."""
    if column.leaf is None:
        yield from (False for _ in range(rows))
        return
    metadata = file.metadata.row_group(group)
    chunk = next(metadata.column(i) for i in range(metadata.num_columns) if metadata.column(i).path_in_schema == column.leaf)
    if chunk.statistics is not None and chunk.statistics.has_null_count and chunk.statistics.null_count == 0:
        yield from (True for _ in range(rows))
    else:
        yield from (data is not None for data in picture_bytes(file, column, group))


def _add(
    rows: Rows, fields: FieldsConfig, column: PictureColumn, record_id: str, number: int, uri: str, row: Row, embedded: bool
) -> None:
    values, text = row
    found = lookup(values, fields.id)
    id = found if found is None or isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if embedded:
        rows.add(record_id, id, f"{uri}#{number}", uri, number, text)
    elif (picture := picture_uri(lookup(values, column.name))) is not None:
        rows.add(record_id, id, picture, uri, number, text)
    else:
        detail = f"row {number}: {column.name!r} holds neither a picture nor an address"
        rows.add(record_id, id, None, uri, number, text, reason="missing_uri", detail=detail)


def _guesses(schema: pa.Schema) -> list[str]:
    """Columns that may hold the pictures, the likeliest first."""
    structs = [f.name for f in schema if pa.types.is_struct(f.type) and f.type.get_field_index("bytes") >= 0]
    named = [f.name for f in schema if f.name.lower() in _PICTURE_NAMES]
    binary = [f.name for f in schema if _is_binary(f.type)]
    return list(dict.fromkeys([name for name in structs if name in named] + structs + named + binary))


def _type_at(schema: pa.Schema, name: str) -> pa.DataType | None:
    """The type under a dotted name, the literal name first."""
    if (index := schema.get_field_index(name)) >= 0:
        return schema.field(index).type
    head, _, tail = name.partition(".")
    while tail:
        index = schema.get_field_index(head)
        if index >= 0 and pa.types.is_struct(schema.field(index).type):
            return _type_at(pa.schema(list(schema.field(index).type)), tail)
        more, _, tail = tail.partition(".")
        head = f"{head}.{more}"
    return None


def _is_binary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_binary(kind.value_type)
    return (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or kind == pa.binary_view()
    )
