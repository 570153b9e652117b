"""Rows of Arrow batches as plain values and as JSON: digits, NaN, times, and texts that are no UTF-8 are all kept."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.core.sources.names import safe_text

Row = tuple[dict[str, Any], str]


def plain_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Each row as a dict of JSON's types, and as JSON text. Bytes are base64, times and decimals text, a map is a list of pairs.
    NaN and the infinities are written as Python and JavaScript write them."""
    columns = [_values(column) for column in batch.columns]
    names = [safe_text(name) for name in batch.schema.names]
    odd = any(_has_odd_floats(column) for column in batch.columns)
    for at in range(batch.num_rows):
        row = {name: column[at] for name, column in zip(names, columns, strict=True)}
        yield row, json.dumps(row, ensure_ascii=False, separators=(",", ":")) if odd else orjson.dumps(row).decode()


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _values(column.storage)
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        return column.to_pylist()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return _texts(column)
    if pa.types.is_struct(kind):
        return _structs(column)
    if isinstance(column, pa.MapArray):
        pairs = list(zip(_values(column.keys), _values(column.items), strict=True))
        return _spread(column, [list(pair) for pair in pairs], column.offsets.to_pylist())
    if isinstance(column, pa.ListArray | pa.LargeListArray):
        return _spread(column, _values(column.values), column.offsets.to_pylist())
    if isinstance(column, pa.FixedSizeListArray):
        first, size = column.offset, kind.list_size
        return _spread(column, _values(column.values), [(first + i) * size for i in range(len(column) + 1)])
    if pa.types.is_decimal(kind):
        return [None if value is None else str(value) for value in column.to_pylist()]
    if pa.types.is_temporal(kind):
        return _times(column)
    return [base64.b64encode(v).decode() if isinstance(v, bytes) else None if v is None else str(v) for v in column.to_pylist()]


def _texts(column: pa.Array) -> list[str | None]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else safe_text(value.decode("utf-8", "surrogateescape")) for value in raw]


def _structs(column: pa.StructArray) -> list[dict[str, Any] | None]:
    names = [safe_text(field.name) for field in column.type]
    if not names:
        return [{} if valid else None for valid in column.is_valid().to_pylist()]
    rows = zip(*(_values(child) for child in column.flatten()), strict=True)
    valid = column.is_valid().to_pylist()
    return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)]


def _spread(column: pa.Array, values: list[Any], offsets: list[int]) -> list[list[Any] | None]:
    valid = column.is_valid().to_pylist()
    return [values[offsets[i] : offsets[i + 1]] if there else None for i, there in enumerate(valid)]


def _times(column: pa.Array) -> list[str | None]:
    try:
        return pc.cast(column, pa.string()).to_pylist()
    except (pa.ArrowException, ValueError):
        return [None if value is None else str(value) for value in column.cast(pa.int64()).to_pylist()]


def _has_odd_floats(column: pa.Array) -> bool:
    """Whether NaN or an infinity is anywhere in it: JSON proper has none, and orjson writes null."""
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.invert(pc.is_finite(column))).as_py())
    if isinstance(column, pa.ExtensionArray):
        return _has_odd_floats(column.storage)
    if pa.types.is_struct(column.type):
        return any(_has_odd_floats(child) for child in column.flatten())
    if pa.types.is_nested(column.type):
        return (
            any(_has_odd_floats(child) for child in (column.items,))
            if isinstance(column, pa.MapArray)
            else _has_odd_floats(column.flatten())
        )
    return pa.types.is_dictionary(column.type) and _has_odd_floats(column.dictionary)
