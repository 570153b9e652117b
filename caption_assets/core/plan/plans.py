"""Reading the plan: which shards there are, and which source objects each is made of. Written by core.planning.

A generation's file says in its metadata which rows are whose, so that the keys of 100,000 shards are known from footers alone
and a shard of a billion-row plan is read by its row groups.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import starmap
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from caption_assets.core.columns import PLAN
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.tables import DamagedTable, own_table

BATCH_ROWS = 4096
COLUMNS = [column.name for column in PLAN]
_GENERATION = re.compile(r"gen-\d{5,}\.parquet")


class PlanError(Exception):
    """The plan cannot be made, or does not fit the source. The message says what to do."""


class SourceChanged(PlanError):
    """A planned source object has other bytes than when it was planned."""

    def __init__(self, dataset: str, uri: str, what: str) -> None:
        super().__init__(
            f"{uri}: {what} since it was planned; if that is right, run `caption-assets plan {dataset} --accept-changed {uri}`"
        )
        self.uri = uri


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One row of the plan: a source object, or a part of one, in one shard. Columns as in core.columns.PLAN."""

    shard: str
    source_uri: str
    kind: str
    start: int
    count: int | None
    byte_offset: int
    byte_length: int
    size: int
    etag: str
    generation: int
    replaces: str | None

    @property
    def identity(self) -> tuple[Any, ...]:
        """What the entry's records depend on."""
        return (self.source_uri, self.kind, self.start, self.count, self.byte_offset, self.byte_length, self.size, self.etag)


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """Where a shard's rows lie. records: None where the plan does not count them (tars)."""

    key: str
    generation: int
    first_row: int
    rows: int
    records: int | None
    replaces: tuple[str, ...]


@dataclass(frozen=True)
class Generation:
    """One write-once plan file, of files of one kind in order of address. kinds: the format of each source as then told. first:
    none of its files has a smaller address."""

    number: int
    uri: str
    kind: str
    shards: tuple[PlannedShard, ...]
    kinds: Mapping[str, str]
    first: str = ""


@dataclass(frozen=True)
class ShardEntries:
    """The entries of one shard, read when iterated, as often as wanted: a folder's shard has one per picture."""

    objects: ObjectStore = field(repr=False)
    uri: str
    shard: PlannedShard

    def __len__(self) -> int:
        return self.shard.rows

    def __iter__(self) -> Iterator[PlanEntry]:
        first, end, row = self.shard.first_row, self.shard.first_row + self.shard.rows, 0
        with own_table(self.objects, self.uri) as file:
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if row >= end or row + rows <= first:
                    row += rows
                    continue
                for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=COLUMNS):
                    begin = min(max(0, first - row), batch.num_rows)
                    wanted = batch.slice(begin, max(0, min(batch.num_rows, end - row) - begin))
                    yield from starmap(PlanEntry, zip(*(column.to_pylist() for column in wanted.columns), strict=True))
                    row += batch.num_rows

    def digest(self) -> str:
        """A hash of what the shard's records depend on."""
        digest = hashlib.sha256()
        for entry in self:
            digest.update(json.dumps(entry.identity).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Plan:
    """All generations. Active shards in plan order; retired ones point to the shard that replaces them."""

    objects: ObjectStore = field(repr=False)
    generations: tuple[Generation, ...] = field(repr=False)

    @cached_property
    def planned(self) -> dict[str, PlannedShard]:
        """Every shard ever planned, by key, in plan order."""
        return {shard.key: shard for generation in self.generations for shard in generation.shards}

    @cached_property
    def retired(self) -> dict[str, str]:
        """Replaced shards: key to the key of the newest shard that retires it."""
        return {old: shard.key for shard in self.planned.values() for old in shard.replaces}

    @cached_property
    def shards(self) -> tuple[str, ...]:
        return tuple(key for key in self.planned if key not in self.retired)

    @cached_property
    def _active(self) -> frozenset[str]:
        return frozenset(self.shards)

    def __contains__(self, shard: object) -> bool:
        return shard in self._active

    @property
    def kinds(self) -> dict[str, str]:
        """The format of each source as it was told at first; it never changes."""
        return {source: kind for generation in reversed(self.generations) for source, kind in generation.kinds.items()}

    def entries(self, shard: str) -> ShardEntries:
        """The shard's entries; PlanError for a key that is not active."""
        if shard not in self:
            raise PlanError(f"{shard!r} is no shard of the plan" + (" any more" if shard in self.retired else ""))
        found = self.planned[shard]
        return ShardEntries(self.objects, self.generations[found.generation].uri, found)

    def records(self, shard: str) -> int | None:
        """Lines, rows or files of the shard; None for tars, which planning does not read."""
        return self.planned[shard].records

    def shards_of(self, uri: str) -> tuple[str, ...]:
        """The active shards that hold the file, or parts of it."""
        found = (key for generation in self.generations for key in _holding(self.objects, generation, uri))
        return tuple(key for key in found if key in self)

    def replaced_by(self, shard: str) -> tuple[str, ...]:
        """The retired shards whose replies count for this one, too, the nearest first."""
        found: list[str] = []
        waiting = list(self.planned[shard].replaces)
        while waiting:
            old = waiting.pop(0)
            if old not in found:
                found.append(old)
                waiting.extend(self.planned[old].replaces if old in self.planned else ())
        return tuple(found)


def load_plan(objects: ObjectStore, layout: Layout) -> Plan:
    """The plan as it is in the store; without shards where there is none yet. Files of other names are not of the plan."""
    folder = layout.plan_folder
    uris = sorted(info.uri for info in objects.list(folder) if _GENERATION.fullmatch(info.uri[len(folder) :]))
    wanted = [layout.plan(number) for number in range(len(uris))]
    if uris != wanted:
        raise PlanError(f"{folder}: generations must be {wanted[0]} and on without a gap; found {', '.join(uris)}")
    with ThreadPoolExecutor(8) as pool:
        return Plan(objects, tuple(pool.map(lambda item: _generation(objects, *item), enumerate(uris))))


def _holding(objects: ObjectStore, generation: Generation, uri: str) -> Iterator[str]:
    """Keys of the shards that have rows of this file; row groups that cannot are not read."""
    column, first, keys = COLUMNS.index("source_uri"), 0, []
    starts = [shard.first_row for shard in generation.shards]
    with own_table(objects, generation.uri) as file:
        for group in range(file.metadata.num_row_groups):
            metadata = file.metadata.row_group(group)
            known = metadata.column(column).statistics
            if known is None or not known.has_min_max or known.min <= uri <= known.max:
                rows = pc.indices_nonzero(pc.equal(file.read_row_group(group, columns=["source_uri"])["source_uri"], uri))
                keys += [generation.shards[bisect_right(starts, first + row) - 1].key for row in rows.to_pylist()]
            first += metadata.num_rows
    yield from dict.fromkeys(keys)


def _generation(objects: ObjectStore, number: int, uri: str) -> Generation:
    with own_table(objects, uri) as file:
        metadata, first = file.metadata.metadata or {}, _smallest(file.metadata, COLUMNS.index("source_uri"))
    if b"shards" not in metadata:
        raise DamagedTable(uri, "it says nothing of shards")
    rows, shards = 0, []
    for key, count, records, replaces in json.loads(metadata[b"shards"]):
        shards.append(PlannedShard(key, number, rows, count, records, tuple(replaces)))
        rows += count
    return Generation(number, uri, metadata[b"kind"].decode(), tuple(shards), json.loads(metadata[b"kinds"]), first)


def _smallest(metadata: pq.FileMetaData, column: int) -> str:
    """The smallest text of a column, or one that is smaller still where the file does not say."""
    known = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
    return min((s.min if s is not None and s.has_min_max else "" for s in known), default="")


assert [f.name for f in fields(PlanEntry)] == COLUMNS
