"""New files into shards: tars by neighbours, catalogs cut and packed by lines or rows, pictures packed by number."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from caption_assets.config import DatasetConfig
from caption_assets.core.columns import PLAN
from caption_assets.core.layout import SHARD_KEY
from caption_assets.core.objectstore import NotAFile, ObjectMissing, ObjectStore
from caption_assets.core.plan.linecount import scan_lines
from caption_assets.core.plan.plans import Plan
from caption_assets.core.sources.decompression import Stream, UnsupportedCompression
from caption_assets.core.sources.listing import record_path
from caption_assets.core.sources.names import tar_stem
from caption_assets.core.sources.parquet import UNREADABLE
from caption_assets.core.tables import arrow_schema, open_parquet

SCHEMA = arrow_schema(PLAN)
SCANS = 8
KEY_CHARS = 100
ROWS_PER_BYTE = 8
"""No parquet file of pictures or addresses has more; a footer that says so is damaged, and its shards would never end."""
Row = tuple[Any, ...]
"""A row of the plan, columns as in PLAN."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class File:
    """A listed file that is to be planned."""

    uri: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or a part of one: columns of core.columns.PLAN. count: None where planning does not count."""

    file: File
    start: int
    count: int | None
    byte_offset: int
    byte_length: int


@dataclass
class Shard:
    """A shard to be written. rows: its part of the plan (columns PLAN), which may be drawn once and only now: tables of pictures,
    or rows of pieces one by one, since a table for each of 100,000 tars costs half a millisecond and some KB. records: None where
    planning does not count them; of pictures it is the number of rows."""

    key: str
    records: int | None
    replaces: tuple[str, ...]
    rows: Iterable[pa.Table] | list[Row]


class Keys:
    """Makes shard keys; never one that any generation has."""

    def __init__(self, plan: Plan, spec: DatasetConfig) -> None:
        self._used, self._spec = set(plan.planned), spec
        numbers = (re.match(r"shard-(\d{5,})(?:-g\d+)?$", key) for key in self._used)
        self._next = max((int(found[1]) for found in numbers if found), default=-1) + 1

    def numbered(self) -> str:
        """shard-00000 and on, for catalogs and folders."""
        self._next += 1
        return self._take(f"shard-{self._next - 1:05d}")

    def of_tar(self, uri: str, stems: Counter[str]) -> str:
        """The tar's stem where it is a key and no other listed tar has it (`stems`), else a safe stem with a hash of its path."""
        stem = tar_stem(uri)
        if SHARD_KEY.match(stem) and stems[stem] == 1 and stem not in self._used:
            return self._take(stem)
        safe = re.sub(r"[^A-Za-z0-9_-]+", "_", stem).lstrip("_-") or "tar"
        digest = hashlib.sha256(record_path(self._spec, uri).encode()).hexdigest()
        digits = next(n for n in (8, 16, 32, 64) if f"{safe[: KEY_CHARS - 1 - n]}-{digest[:n]}" not in self._used)
        return self._take(f"{safe[: KEY_CHARS - 1 - digits]}-{digest[:digits]}")

    def replacing(self, old: str, was_replacement: bool, generation: int) -> str:
        """The old key with `-g{generation}`, which takes the place of an earlier one."""
        base = re.sub(r"-g\d+$", "", old) if was_replacement else old
        ending = f"-g{generation}"
        plain = base[: KEY_CHARS - len(ending)] + ending
        digest = hashlib.sha256(old.encode()).hexdigest()[:16]
        return self._take(plain if plain not in self._used else f"{base[: KEY_CHARS - 17 - len(ending)]}-{digest}{ending}")

    def _take(self, key: str) -> str:
        if key in self._used:
            raise AssertionError(f"{key} is taken")
        self._used.add(key)
        return key


def tar_groups(files: list[File], size: int, hold_back: bool) -> tuple[list[list[Piece]], list[File]]:
    """Neighbours by `size`, and the files of a last short group that is held back."""
    held = files[len(files) - len(files) % size :] if hold_back else []
    kept = [Piece(file, 0, None, 0, file.size) for file in files[: len(files) - len(held)]]
    return [kept[at : at + size] for at in range(0, len(kept), size)], held


def catalog_groups(objects: ObjectStore, kind: str, files: Iterable[File], size: int) -> Iterator[list[Piece]]:
    """Catalogs read once, several at a time, cut into pieces of at most `size` records; short pieces are packed in order."""
    return packed((p for pieces in _in_parallel(lambda file: cut(objects, kind, file, size), files) for p in pieces), size)


def cut(objects: ObjectStore, kind: str, file: File, size: int) -> list[Piece]:
    """One file as pieces: catalogs of at most `size` records, tars and pictures whole."""
    if kind == "jsonl":
        return _jsonl_pieces(objects, file, size)
    if kind == "parquet":
        return _parquet_pieces(objects, file, size)
    return [Piece(file, 0, 1 if kind == "images" else None, 0, file.size)]


def packed(pieces: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    """Neighbouring pieces as long as they have at most `size` records together. An uncounted piece stands alone."""
    group: list[Piece] = []
    records = 0
    for piece in pieces:
        count = size if piece.count is None else piece.count
        if group and records + count > size:
            yield group
            group, records = [], 0
        group.append(piece)
        records += count
    if group:
        yield group


def _jsonl_pieces(objects: ObjectStore, file: File, size: int) -> list[Piece]:
    """A plain catalog by byte ranges; a packed one, which cannot be entered in its middle, by line numbers. One that cannot be
    read, or was listed and is gone, is one piece, so that its shard says so."""
    try:
        with Stream(objects.open(file.uri)) as stream:
            scan, plain = scan_lines(stream, size), stream.plain
    except (UnsupportedCompression, ObjectMissing, NotAFile):
        return [Piece(file, 0, None, 0, file.size)]
    starts = [0, *scan.starts]
    counts = [size] * len(scan.starts) + [scan.lines - size * len(scan.starts)]
    if not plain:
        return [Piece(file, i * size, count, 0, file.size) for i, count in enumerate(counts)]
    return [
        Piece(file, i * size, count, start, end - start)
        for i, (count, start, end) in enumerate(zip(counts, starts, [*scan.starts, scan.size], strict=True))
    ]


def _parquet_pieces(objects: ObjectStore, file: File, size: int) -> list[Piece]:
    """Whole row groups together up to `size` rows; a longer row group is cut. An unreadable file is one piece."""
    try:
        with open_parquet(objects, file.uri) as parquet:
            groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
        if min(groups, default=0) < 0 or sum(groups) > ROWS_PER_BYTE * file.size:
            raise ValueError("a footer that lies")
    except (*UNREADABLE, ObjectMissing, NotAFile):
        return [Piece(file, 0, None, 0, file.size)]
    pieces: list[Piece] = []
    start = first = count = 0
    for number, rows in enumerate(groups):
        if count and count + rows > size:
            pieces.append(Piece(file, start, count, first, number - first))
            start, count = start + count, 0
        if count == 0:
            first = number
        count += rows
        while count > size:
            pieces.append(Piece(file, start, size, number, 1))
            start, count = start + size, count - size
    if count or not pieces:
        pieces.append(Piece(file, start, count, first, len(groups) - first))
    return pieces


def piece_rows(key: str, kind: str, pieces: list[Piece], generation: int, replaces: str | None) -> list[Row]:
    """The plan's rows of one shard."""
    return [
        (key, p.file.uri, kind, p.start, p.count, p.byte_offset, p.byte_length, p.file.size, p.file.etag, generation, replaces)
        for p in pieces
    ]


def rows_table(rows: list[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def records_of(pieces: list[Piece]) -> int | None:
    """Records of the pieces together; None where one is not counted."""
    return None if any(piece.count is None for piece in pieces) else sum(piece.count or 0 for piece in pieces)


def portions(files: Iterator[pa.RecordBatch], size: int) -> Iterator[Iterator[pa.Table]]:
    """Listed pictures by `size` in order (columns uri, size, etag). Each portion must be taken before the next."""
    waiting: pa.Table | None = None

    def following() -> pa.Table | None:
        nonlocal waiting
        if waiting is None and (batch := next(files, None)) is not None:
            waiting = pa.Table.from_batches([batch])
        return waiting

    def portion() -> Iterator[pa.Table]:
        nonlocal waiting
        left = size
        while left and (table := following()) is not None:
            taken = table.slice(0, left)
            waiting = table.slice(left) if table.num_rows > left else None
            left -= taken.num_rows
            yield taken

    while following() is not None:
        yield portion()


def picture_rows(key: str, files: pa.Table, generation: int) -> pa.Table:
    """The plan's rows of a new shard's pictures."""
    count = files.num_rows

    def same(value: Any, name: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, SCHEMA.field(name).type), count)

    fixed = {
        "shard": key,
        "kind": "images",
        "start": 0,
        "count": 1,
        "byte_offset": 0,
        "generation": generation,
        "replaces": None,
    }
    listed = {"source_uri": files["uri"], "byte_length": files["size"], "size": files["size"], "etag": files["etag"]}
    columns = [listed[name] if name in listed else same(fixed[name], name) for name in SCHEMA.names]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _in_parallel(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Results in order, SCANS at a time, drawn as far ahead."""
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(SCANS, thread_name_prefix="plan") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > SCANS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
