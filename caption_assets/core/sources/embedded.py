"""Bytes of pictures that lie in rows of a parquet file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from types import TracebackType

import pyarrow.parquet as pq

from caption_assets.config import FieldsConfig
from caption_assets.core.faults import Fault
from caption_assets.core.objectstore import ObjectError, ObjectStore
from caption_assets.core.sources.parquet import BUFFER, UNREADABLE, PictureColumn, picture_bytes, picture_column
from caption_assets.core.tables import open_parquet


class Embedded:
    """The pictures of one file, by row. In order of rows each row group is read once, a few pictures in memory."""

    def __init__(self, objects: ObjectStore, fields: FieldsConfig, uri: str) -> None:
        self._objects, self._fields, self._uri = objects, fields, uri
        self._file: pq.ParquetFile | None = None
        self._fault: Fault | None = None
        self._broken: dict[int, Fault] = {}
        self._group = -1
        self._following = 0
        self._pictures: Iterator[bytes | None] = iter(())

    def __enter__(self) -> Embedded:
        try:
            self._file = open_parquet(self._objects, self._uri, BUFFER)
            self._column: PictureColumn = picture_column(self._file, self._fields)
            groups = range(self._file.metadata.num_row_groups)
            self._starts = [0, *accumulate(self._file.metadata.row_group(group).num_rows for group in groups)]
        except ObjectError as error:
            self._fault = Fault(error.reason, str(error))
        except UNREADABLE as error:
            self._fault = self._damaged(error)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def read(self, number: int) -> bytes | Fault:
        """The picture of row `number`, from 1."""
        if self._fault or self._file is None or self._column.leaf is None:
            return self._fault or Fault("missing_image", f"{self._uri}: has no column of pictures any more")
        row = number - 1
        group, first = self._group_of(row)
        if group < 0:
            return Fault("missing_image", f"{self._uri}: has no row {number}")
        if group in self._broken:
            return self._broken[group]
        try:
            if group != self._group or row < self._following:
                self._pictures, self._group, self._following = picture_bytes(self._file, self._column, group), group, first
            data = None
            while self._following <= row:
                data = next(self._pictures)
                self._following += 1
        except ObjectError as error:
            self._group = -1
            return Fault(error.reason, str(error))
        except (*UNREADABLE, StopIteration) as error:
            self._group = -1
            self._broken[group] = self._damaged(error)
            return self._broken[group]
        return data if data is not None else Fault("missing_image", f"{self._uri}: row {number} holds no picture")

    def _group_of(self, row: int) -> tuple[int, int]:
        """The row group that holds the row, and its first row; -1 for none."""
        group = bisect_right(self._starts, row) - 1
        return (group, self._starts[group]) if 0 <= row < self._starts[-1] else (-1, 0)

    def _damaged(self, error: BaseException) -> Fault:
        return Fault("truncated_shard", f"{self._uri}: cannot be read: {error}"[:500])
