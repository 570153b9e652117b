"""Which records of merged go into an export, and which of their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.tables import TableHandle

BATCH_ROWS = 2048


class ExportError(Exception):
    """The export cannot be made as asked. The message says what to do instead."""


@dataclass(frozen=True)
class Selection:
    """A record is taken while one of its outputs is left by what is asked here.

    output: this one only, None for all. recipe: what was said under this recipe of the output. without_reasons: no record that
    has one of these reasons for any output; `*` for any reason. min_chars: of a text. min_side: pixels of the shorter side.
    unique: no second record of the same picture (within its shard).
    """

    output: str | None = None
    recipe: str | None = None
    without_reasons: tuple[str, ...] = ()
    min_chars: int = 0
    min_side: int = 0
    unique: bool = False

    def as_dict(self) -> dict[str, Any]:
        """As written into export.json."""
        return {**asdict(self), "without_reasons": list(self.without_reasons)}


def outputs_of(schema: pa.Schema, selection: Selection) -> list[str]:
    """The outputs to export of a merged table, in its order. Raises ExportError."""
    known = [
        name.removesuffix("_info")
        for name in schema.names
        if name.endswith("_info") and name.removesuffix("_info") in schema.names
    ]
    if selection.output is None:
        return known
    if selection.output not in known:
        raise ExportError(f"there is no output {selection.output!r}; there are: {', '.join(known)}")
    return [selection.output]


def selected(objects: ObjectStore, merged: TableHandle, outputs: Sequence[str], selection: Selection) -> Iterator[pa.Table]:
    """The selected rows in order, all columns; texts that are not asked for are null."""
    start = 0
    first = _first_of_picture(objects, merged) if selection.unique else None
    for batch in merged.batches(objects, rows=BATCH_ROWS):
        rows = pa.Table.from_batches([batch])
        keep = np.zeros(rows.num_rows, bool)
        for name in outputs:
            wanted = _wanted(rows, name, selection)
            rows = rows.set_column(rows.schema.get_field_index(name), name, pc.if_else(wanted, rows[name], None))
            keep |= wanted.to_numpy()
        keep &= _fits(rows, selection)
        if first is not None:
            keep &= first[start : start + rows.num_rows]
        start += rows.num_rows
        yield rows.filter(pa.array(keep))


def _wanted(rows: pa.Table, output: str, selection: Selection) -> pa.ChunkedArray:
    wanted = pc.is_valid(rows[output])
    if selection.recipe is not None:
        recipe = pc.struct_field(rows[f"{output}_info"], "recipe")
        wanted = pc.and_(wanted, pc.fill_null(pc.equal(recipe, selection.recipe), False))
    if selection.min_chars:
        wanted = pc.and_(wanted, pc.fill_null(pc.greater_equal(pc.utf8_length(rows[output]), selection.min_chars), False))
    return wanted


def _fits(rows: pa.Table, selection: Selection) -> np.ndarray[Any, np.dtype[np.bool_]]:
    fits = np.ones(rows.num_rows, bool)
    for name in rows.column_names:
        if selection.without_reasons and name.endswith("_reason"):
            bad = pc.is_valid(rows[name])
            if "*" not in selection.without_reasons:
                bad = pc.is_in(rows[name], value_set=pa.array(selection.without_reasons, pa.string()))
            fits &= ~bad.to_numpy()
    if selection.min_side:
        side = pc.min_element_wise(rows["width"], rows["height"], skip_nulls=False)
        fits &= pc.fill_null(pc.greater_equal(side, selection.min_side), False).to_numpy()
    return fits


def _first_of_picture(objects: ObjectStore, merged: TableHandle) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each row whether its picture did not come before; 64 bytes a row while it is made."""
    hashes = [batch["sha256"].to_numpy(zero_copy_only=False).astype("S64") for batch in merged.batches(objects, ["sha256"])]
    first = np.zeros(merged.rows, bool)
    if hashes:
        first[np.unique(np.concatenate(hashes), return_index=True)[1]] = True
    return first
