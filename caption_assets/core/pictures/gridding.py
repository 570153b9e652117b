"""A shard's pictures: read once, hashed, fully decoded, put into grids, and told of in the mapping.

Two passes, so that memory does not grow with the shard. The first streams the pictures through a bounded pool of threads and
writes grids to tars and rows to a scratch file; where a grid lies is known only when it is full, and any number of duplicates
may stand before that. The second reads the rows back and adds the places.
"""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
from PIL import Image

from caption_assets.config import DatasetConfig, GridConfig
from caption_assets.core.columns import MAPPING
from caption_assets.core.faults import Fault
from caption_assets.core.grids import compose, grid_size
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore, scratch_dir
from caption_assets.core.pictures.examining import Examined, examine, mapping_row
from caption_assets.core.pictures.firstseen import FirstSeen
from caption_assets.core.pictures.gridtars import GridTars
from caption_assets.core.recipes import digest, geometry
from caption_assets.core.sources.pictures import REF_COLUMNS, PictureRef, Pictures
from caption_assets.core.tables import RecordStream, TableHandle, arrow_schema, batches_of

THREADS = 16
MEMORY = 512 << 20
"""About how many bytes of decoded pictures, and of grids in the making, may wait at a time."""
_MAPPING = arrow_schema(MAPPING)
_SCRATCH = _MAPPING.append(pa.field("grid", pa.int64()))
_PLACE = struct.Struct("<32sIQQ")


def build_grids(objects: ObjectStore, layout: Layout, spec: DatasetConfig, shard: str, manifest: TableHandle) -> RecordStream:
    """The mapping of a shard: one row per manifest record without a reason, in manifest order. Grid tars are published while
    the batches are drawn; `remove_stale` clears what an earlier run left, once the mapping is published.

    What is wrong with a picture or its source becomes a reason; errors of the store are raised.
    """
    build = _Build(objects, layout, spec, shard, manifest)
    return RecordStream(_MAPPING, build.batches(), build.metadata, build.summary)


class _Build:
    def __init__(self, objects: ObjectStore, layout: Layout, spec: DatasetConfig, shard: str, manifest: TableHandle) -> None:
        self._objects, self._layout, self._spec, self._shard, self._manifest = objects, layout, spec, shard, manifest
        self._records = self._refs = self._grids = self._tars = self._duplicates = self._bytes = 0
        self._faults: Counter[str] = Counter()
        self._cells: list[Image.Image] = []
        self._members: list[tuple[str, str]] = []

    def metadata(self) -> dict[str, str]:
        return {"geometry": json.dumps(geometry(self._spec)), "grid_tars": str(self._tars)}

    def summary(self) -> dict[str, Any]:
        return {
            "records": self._records,
            "grids": self._grids,
            "duplicates": self._duplicates,
            "faults": dict(self._faults),
            "bytes": self._bytes,
        }

    def batches(self) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="caption-assets-", dir=scratch_dir()) as name:
            folder = Path(name)
            with open(folder / "places", "x+b") as places:
                with pa.OSFile(str(folder / "rows"), "wb") as sink, pa.ipc.new_stream(sink, _SCRATCH) as rows:
                    for batch in batches_of(self._rows(folder, places), _SCRATCH):
                        rows.write_batch(batch)
                with pa.OSFile(str(folder / "rows"), "rb") as source, pa.ipc.open_stream(source) as written:
                    for batch in written:
                        yield self._placed(batch, places)

    def _rows(self, folder: Path, places: BinaryIO) -> Iterator[dict[str, Any]]:
        """First pass: rows in order, each with the number of its grid; all grids are published when it ends."""
        grid = self._spec.grid
        with ExitStack() as stack:
            pool = ThreadPoolExecutor(THREADS, thread_name_prefix="picture")
            stack.callback(pool.shutdown, cancel_futures=True)
            tars = GridTars(self._objects, self._layout, self._shard, grid.format, folder)
            stack.callback(tars.close)
            seen = stack.enter_context(FirstSeen(folder, self._manifest.rows))
            making = _InOrder(_at_most(grid_size(grid)), lambda made: self._store(made, tars, places))
            for ref, examined in self._examined(pool):
                self._records += 1
                row = mapping_row(ref, examined, self._spec)
                if isinstance(examined, Examined) and not examined.fault:
                    if self._spec.dedup == "exact":
                        row["duplicate_of"] = seen.first(examined.sha256, ref.record_id)
                    if row["duplicate_of"]:
                        self._duplicates += 1
                    elif examined.cell is not None:
                        self._cells.append(examined.cell)
                        self._members.append((ref.record_id, row["sha256"]))
                        row["grid"], row["slot"] = self._grids, len(self._cells)
                        if len(self._cells) == grid.rows * grid.cols:
                            making.add(self._start(pool))
                else:
                    self._faults[row["reason"]] += 1
                yield row
            if self._cells:
                making.add(self._start(pool))
            making.finish()
            self._tars = tars.finish()
        if self._records != self._refs:
            raise RuntimeError(f"{self._shard}: {self._refs} pictures were asked for, {self._records} came")

    def _examined(self, pool: ThreadPoolExecutor) -> Iterator[tuple[PictureRef, Examined | Fault]]:
        """Every picture in order, read ahead and decoded by the pool, at most so many at a time as MEMORY allows."""
        draw = not self._spec.grid.single
        limit = _at_most((self._spec.grid.cell_size,) * 2, THREADS * 3) if draw else THREADS * 3
        waiting: deque[tuple[PictureRef, Future[Examined] | Fault]] = deque()

        def next_one() -> tuple[PictureRef, Examined | Fault]:
            ref, result = waiting.popleft()
            return ref, result if isinstance(result, Fault) else result.result()

        for ref, data in Pictures(self._objects, self._spec).stream(self._wanted()):
            waiting.append((ref, data if isinstance(data, Fault) else pool.submit(examine, data, self._spec, draw=draw)))
            if len(waiting) >= limit:
                yield next_one()
        while waiting:
            yield next_one()

    def _wanted(self) -> Iterator[PictureRef]:
        for batch in self._manifest.batches(self._objects, [*REF_COLUMNS, "reason"]):
            for row in batch.to_pylist():
                if row["reason"] is None:
                    self._refs += 1
                    yield PictureRef.of(row)

    def _start(self, pool: ThreadPoolExecutor) -> Future[tuple[str, bytes, bytes]]:
        """Begins the grid of the cells gathered so far."""
        members, cells = self._members, self._cells
        self._members, self._cells = [], []
        self._grids += 1
        grid_id = digest([geometry(self._spec), members], 32)
        return pool.submit(_made, grid_id, cells, members, self._spec.grid)

    def _store(self, made: tuple[str, bytes, bytes], tars: GridTars, places: BinaryIO) -> None:
        grid_id, picture, description = made
        self._bytes += len(picture)
        places.write(_PLACE.pack(grid_id.encode(), *tars.append(grid_id, picture, description)))

    def _placed(self, batch: pa.RecordBatch, places: BinaryIO) -> pa.RecordBatch:
        """Second pass: the rows with the places of their grids, whose numbers rise from row to row."""
        numbers = batch.column("grid").to_pylist()
        present = [number for number in numbers if number is not None]
        columns = {name: batch.column(name) for name in _MAPPING.names}
        if present:
            places.seek(present[0] * _PLACE.size)
            data = places.read((present[-1] - present[0] + 1) * _PLACE.size)
            found = [
                (grid_id.decode(), self._layout.grid_tar(self._shard, tar), offset, length)
                for grid_id, tar, offset, length in _PLACE.iter_unpack(data)
            ]
            rows = [(None,) * 4 if number is None else found[number - present[0]] for number in numbers]
            for name, values in zip(
                ("grid_id", "grid_object", "byte_offset", "byte_length"), zip(*rows, strict=True), strict=True
            ):
                columns[name] = pa.array(values, _MAPPING.field(name).type)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=_MAPPING)


def _made(grid_id: str, cells: list[Image.Image], members: list[tuple[str, str]], grid: GridConfig) -> tuple[str, bytes, bytes]:
    """A grid's id, its picture, and the JSON beside it: which record stands in which cell, and the picture's own hash."""
    picture = compose(cells, grid)
    description = {
        "grid_id": grid_id,
        "cells": [{"slot": n, "record_id": name, "sha256": sha} for n, (name, sha) in enumerate(members, 1)],
        "picture_sha256": hashlib.sha256(picture).hexdigest(),
    }
    return grid_id, picture, orjson.dumps(description)


class _InOrder:
    """Futures whose results are taken in the order they were added; at most `limit` wait."""

    def __init__(self, limit: int, take: Callable[[Any], None]) -> None:
        self._limit, self._take = limit, take
        self._waiting: deque[Future[Any]] = deque()

    def add(self, future: Future[Any]) -> None:
        self._waiting.append(future)
        if len(self._waiting) >= self._limit:
            self._take(self._waiting.popleft().result())

    def finish(self) -> None:
        while self._waiting:
            self._take(self._waiting.popleft().result())


def _at_most(size: tuple[int, int], most: int = THREADS) -> int:
    """How many pictures of this size may wait: Pillow takes 4 bytes a pixel, an encoder about as much again."""
    return max(2, min(most, MEMORY // (8 * size[0] * size[1])))
