"""Rows too many for memory: written once to a scratch file, then read from any place in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
BATCH_ROWS = 8192


class Spill:
    """A local Arrow file of rows 0, 1, …, mapped into memory: the page cache holds what is used, nothing is parsed twice.

    Rows are appended first; `seal` ends that, and reading begins. The file belongs to whoever made its folder.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = 0
        self._path = path
        self._pending: list[pa.Table] = []
        self._bounds = [0]
        self._writer = pa.ipc.new_file(str(path), schema)

    def append(self, rows: pa.Table) -> None:
        """Adds rows of this schema; small pieces are gathered into batches of BATCH_ROWS, or somewhat more."""
        self.rows += rows.num_rows
        self._pending.append(rows)
        if self.rows - self._bounds[-1] >= BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self.rows > self._bounds[-1]:
            for batch in pa.concat_tables(self._pending).combine_chunks().to_batches(2 * BATCH_ROWS):
                self._writer.write_batch(batch)
                self._bounds.append(self._bounds[-1] + batch.num_rows)
        self._pending = []

    def seal(self) -> Spill:
        """Ends the writing; to be called once."""
        self._flush()
        self._writer.close()
        self._file = pa.ipc.open_file(pa.memory_map(str(self._path)))
        return self

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """All rows in order, as they were appended, at most `rows` at a time."""
        for number in range(len(self._bounds) - 1):
            batch = self._file.get_batch(number)
            step = -(-batch.num_rows // -(-batch.num_rows // rows))  # parts of about one size
            yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))

    def table(self) -> pa.Table:
        """All rows as one table that lies in the file, not in memory."""
        return self._file.read_all()

    def take(self, rows: Ints, columns: list[str] | None = None) -> pa.Table:
        """The rows of these numbers, in the order asked, all columns or some; -1 gives a row of nulls.

        Each batch is visited once, and rows that lie close together in it are not copied before they are put in order.
        """
        present = rows >= 0
        wanted = rows[present]
        order = np.argsort(wanted, kind="stable")
        ascending = wanted[order]
        cuts = np.searchsorted(ascending, self._bounds)
        schema = pa.schema([self.schema.field(name) for name in columns or self.schema.names])
        place, known = np.empty(len(wanted), np.int64), 0
        parts: list[pa.RecordBatch] = []
        for number in np.flatnonzero(np.diff(cuts)):
            here = slice(cuts[number], cuts[number + 1])
            mine = ascending[here] - self._bounds[number]
            batch, span = self._file.get_batch(int(number)).select(schema.names), int(mine[-1] - mine[0]) + 1
            if span <= 2 * len(mine):
                parts.append(batch.slice(int(mine[0]), span))
                place[order[here]] = known + mine - mine[0]
            else:
                parts.append(batch.take(pa.array(mine)))
                place[order[here]] = known + np.arange(len(mine))
            known += parts[-1].num_rows
        index = np.full(len(rows), -1, dtype=np.int64)
        index[present] = place
        return pa.Table.from_batches(parts, schema).combine_chunks().take(pa.array(index, mask=~present))
