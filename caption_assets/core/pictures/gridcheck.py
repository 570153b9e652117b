"""Whether a shard's grids are what its mapping says: tars that any tool opens, and in them every grid at its place.

The whole mapping is read, and every place in it is compared with its neighbours and with the sizes of the tars: a tar that is cut
off, missing, or of another mapping shows without being read. The bytes are looked at in samples: the first and the last grid of
every tar, and some others, chosen anew each time. So a shard of a million records costs a few hundred reads, on S3 too; of a
shard of few grids every byte is read.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
from PIL import Image

from caption_assets.config import DatasetConfig, GridConfig
from caption_assets.core.grids import grid_size
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectError, ObjectMissing, ObjectStore
from caption_assets.core.pictures.gridtars import padded
from caption_assets.core.recipes import digest, geometry
from caption_assets.core.tables import TableHandle, table

OPENED, DECODED = 64, 8
"""Grids besides the first and last of each tar that are opened, and grids that are decoded."""
MOST_PROBLEMS = 20
BLOCK = tarfile.BLOCKSIZE
_COLUMNS = ["record_id", "grid_id", "grid_object", "byte_offset", "byte_length", "slot", "sha256"]


@dataclass
class GridFindings:
    """problems: the first few in words, `problem_count` of them in all; note: why there was nothing to open."""

    figures: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    note: str | None = None

    def add(self, problem: str) -> None:
        self.problem_count += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)


@dataclass
class _Grid:
    """One grid as the mapping tells it. end: where its two members end, which is where the next one begins, or the tar ends; -1
    where there is no such tar."""

    number: int
    grid_id: str
    uri: str
    offset: int
    length: int
    cells: list[tuple[int, str, str]]
    end: int = 0
    last: bool = False

    @property
    def begin(self) -> int:
        return self.offset - BLOCK

    def __str__(self) -> str:
        return f"{self.uri.rsplit('/', 1)[1]}: grid {self.grid_id[:12]} at byte {self.begin}"


def check_grids(objects: ObjectStore, layout: Layout, spec: DatasetConfig, shard: str, seed: str) -> GridFindings:
    """Looks at the shard's tars and mapping as they lie in the store. seed: chooses the sample.

    What is wrong with them is a problem in words; a store that cannot be reached raises ObjectError.
    """
    found = GridFindings()
    try:
        mapping = table(objects, layout.mapping(shard))
        _Check(objects, layout, spec, shard, mapping, found, random.Random(seed)).run()
    except ObjectMissing as error:
        found.add(f"{error}: materialize concat_grids")
    except (pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of this machine; pyarrow's own about a damaged file have no number
        found.add(f"{layout.mapping(shard)} cannot be read: {error}")
    return found


class _Check:
    def __init__(
        self,
        objects: ObjectStore,
        layout: Layout,
        spec: DatasetConfig,
        shard: str,
        mapping: TableHandle,
        found: GridFindings,
        chance: random.Random,
    ) -> None:
        self._objects, self._layout, self._spec, self._shard = objects, layout, spec, shard
        self._mapping, self._found = mapping, found
        self._geometry = json.loads(mapping.metadata.get("geometry", "null"))
        self._wanted = int(mapping.summary.get("grids", 0))
        self._sample = set(chance.sample(range(self._wanted), min(OPENED, self._wanted)))
        self._decoded = set(chance.sample(sorted(self._sample), min(DECODED, len(self._sample))))

    def run(self) -> None:
        found = self._found
        if missing := [name for name in _COLUMNS if name not in self._mapping.schema.names]:
            return found.add(f"{self._mapping.uri} has no column {', '.join(missing)}")
        if not isinstance(self._geometry, dict):
            return found.add(f"{self._mapping.uri} does not say its geometry")
        found.figures = {"records": self._mapping.rows, "geometry_of_the_config": self._geometry == geometry(self._spec)}
        if "rows" not in self._geometry:
            found.note = "1x1: pictures are sent from the source, there are no grids to open"
            return None
        self._config = GridConfig(**self._geometry)
        folder = self._layout.grids_folder(self._shard)
        sizes = {info.uri: info.size for info in self._objects.list(folder) if info.uri.endswith(".tar")}
        merged = self._layout.merged(self._shard)
        if not sizes and self._wanted and self._spec.grid.keep == "until_merged" and self._objects.exists(merged):
            found.note = "keep: until_merged: the grids of this merged shard were cleaned away"
            return None
        self._open(sizes)
        return None

    def _open(self, sizes: dict[str, int]) -> None:
        chosen, tars, grids = [], dict[str, None](), 0
        for grid in self._placed(sizes):
            grids += 1
            first = grid.uri not in tars
            tars[grid.uri] = None
            fits = grid.uri in sizes and grid.offset >= BLOCK and grid.offset + grid.length <= grid.end <= sizes[grid.uri]
            if fits and (first or grid.last or grid.number in self._sample):
                chosen.append(grid)
        self._compare(sizes, list(tars), grids)
        reads = [(grid.uri, grid.begin, grid.end - grid.begin) for grid in chosen]
        for grid, data in zip(chosen, self._objects.read_many(reads), strict=True):
            if isinstance(data, ObjectError) and not isinstance(data, ObjectMissing):
                raise data
            problem = str(data) if isinstance(data, ObjectError) else self._look_into(grid, data)
            if problem:
                self._found.add(f"{grid}: {problem}")
        self._found.figures |= {
            "grids": grids,
            "tars": len(sizes),
            "grids_opened": len(chosen),
            "grids_decoded": sum(grid.number in self._decoded for grid in chosen),
        }

    def _compare(self, sizes: dict[str, int], tars: list[str], grids: int) -> None:
        """What the mapping names against what is there."""
        for uri in tars:
            if uri not in sizes:
                self._found.add(f"{uri} is missing: materialize concat_grids again")
        for uri in sizes.keys() - set(tars):
            self._found.add(f"{uri} is there, and no record is in it")
        said = int(self._mapping.metadata.get("grid_tars", 0))
        expected = [self._layout.grid_tar(self._shard, number) for number in range(said)]
        if tars != expected or grids != self._wanted:
            self._found.add(f"the mapping says {self._wanted} grids in {said} tars, its rows name {grids} in {len(tars)}")

    def _placed(self, sizes: dict[str, int]) -> Iterator[_Grid]:
        """The grids with their ends. Each has to begin where the one before it in its tar ends."""
        before: _Grid | None = None
        for grid in self._grids():
            if before is not None:
                before.last = before.uri != grid.uri
                yield self._ended(before, sizes.get(before.uri, -1) if before.last else grid.begin)
            if (before is None or before.last) and grid.begin != 0:
                self._found.add(f"{grid}: is the first of its tar")
            before = grid
        if before is not None:
            before.last = True
            yield self._ended(before, sizes.get(before.uri, -1))

    def _ended(self, grid: _Grid, end: int) -> _Grid:
        grid.end = end
        members = padded(grid.length) + BLOCK  # and the description's own blocks
        whole = tarfile.RECORDSIZE if grid.last else BLOCK  # a tar is filled up with zeros to whole records
        if end >= 0 and (grid.begin % BLOCK or end % whole or end <= grid.offset + members):
            said = f"its tar ends at byte {end}" if grid.last else f"the next one begins at byte {end}"
            self._found.add(f"{grid}: has {grid.length} bytes, but {said}")
        return grid

    def _grids(self) -> Iterator[_Grid]:
        """Rows with a cell, gathered into grids: full but for the last, their cells numbered from 1."""
        grid: _Grid | None = None
        number = -1
        full = self._config.rows * self._config.cols
        for batch in self._mapping.batches(self._objects, _COLUMNS, rows=16_384):
            rows = batch.filter(batch.column("grid_id").is_valid())
            columns = [rows.column(name).to_pylist() for name in _COLUMNS]
            for record, grid_id, uri, offset, length, slot, sha256 in zip(*columns, strict=True):
                cell = (slot, record, sha256)
                if grid is not None and (grid.grid_id, grid.uri, grid.offset, grid.length) == (grid_id, uri, offset, length):
                    if slot != len(grid.cells) + 1 or slot > full:
                        self._found.add(f"{grid}: {record} stands in cell {slot}, cell {len(grid.cells) + 1} was next")
                    grid.cells.append(cell)
                    continue
                if grid is not None:
                    if len(grid.cells) != full:
                        self._found.add(f"{grid}: has {len(grid.cells)} of {full} cells and is not the last")
                    yield grid
                if None in (uri, offset, length, slot) or slot != 1:
                    self._found.add(f"{record}: begins grid {grid_id} in cell {slot}, at byte {offset} of {uri}")
                    grid = None
                    continue
                number += 1
                grid = _Grid(number, grid_id, uri, offset, length, [cell])
        if grid is not None:
            yield grid

    def _look_into(self, grid: _Grid, data: bytes) -> str | None:
        """What is wrong with a grid's part of its tar, read as any tool would."""
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
                members = tar.getmembers()
        except tarfile.TarError as error:
            return f"is no tar there ({error})"
        names = [f"{grid.grid_id}.{self._config.format}", f"{grid.grid_id}.json"]
        if [member.name for member in members] != names:
            return f"holds {', '.join(repr(member.name) for member in members) or 'nothing'} instead of {' and '.join(names)}"
        picture, told = members
        if (picture.offset_data, picture.size) != (BLOCK, grid.length):
            return f"its picture has {picture.size} bytes, the mapping says {grid.length}"
        after = data[told.offset_data + padded(told.size) :]
        if any(after) or (len(after) < 2 * BLOCK if grid.last else bool(after)):
            return "its tar does not end as tars do" if grid.last else "something lies between it and the next one"
        encoded = data[BLOCK : BLOCK + grid.length]
        return self._described(grid, encoded, data[told.offset_data : told.offset_data + told.size]) or (
            self._decode(encoded) if grid.number in self._decoded else None
        )

    def _described(self, grid: _Grid, picture: bytes, told: bytes) -> str | None:
        try:
            said = orjson.loads(told)
            cells = [(cell["slot"], cell["record_id"], cell["sha256"]) for cell in said["cells"]]
        except (ValueError, KeyError, TypeError):
            return "its JSON cannot be read"
        if cells != grid.cells or said.get("grid_id") != grid.grid_id:
            return "its JSON names other cells than the mapping"
        if digest([self._geometry, [cell[1:] for cell in cells]], 32) != grid.grid_id:
            return "its grid_id is not that of its cells and the mapping's geometry"
        if said.get("picture_sha256") not in (None, hashlib.sha256(picture).hexdigest()):
            return "its picture is not the one that was written (another sha256)"
        return None

    def _decode(self, picture: bytes) -> str | None:
        try:
            with Image.open(io.BytesIO(picture), formats=[self._config.format]) as image:
                image.load()
        except Exception as error:  # Pillow raises much; whatever it is, nobody can see this picture
            return f"its picture cannot be decoded ({error})"
        return None if image.size == grid_size(self._config) else f"its picture is {image.size}, not {grid_size(self._config)}"
