"""The source against the plan: which files are new, which changed, which are gone. Streams both, in order of address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.core.objectstore import ObjectInfo
from caption_assets.core.plan.plans import Generation, Plan
from caption_assets.core.tables import own_table

LISTED = pa.schema([("uri", pa.string()), ("size", pa.int64()), ("etag", pa.string()), ("mtime", pa.float64())])
PAGE = 16_000
NAMED = 1_000
"""How many changed and vanished files are kept by name; all are counted."""

_FILE = ["source_uri", "size", "etag"]


class OutOfOrder(Exception):
    """A store listed its objects in no order."""


@dataclass(frozen=True)
class Change:
    """A planned file that is not what it was."""

    uri: str
    was: str
    now: str


class Comparison:
    """A listing of files of one kind against the active part of a plan. Counts and names are complete when `new` is exhausted."""

    def __init__(self, plan: Plan, kind: str) -> None:
        self.changed: list[Change] = []
        self.vanished: list[str] = []
        self.changed_count = self.vanished_count = self.listed = 0
        self._last_gone: str | None = None
        self._planned = [_Planned(plan, generation) for generation in plan.generations if generation.kind == kind]

    def new(self, files: Iterator[ObjectInfo]) -> Iterator[pa.RecordBatch]:
        """The files that no shard has, in order (columns LISTED). Raises OutOfOrder."""
        before = ""
        while page := list(islice(files, PAGE)):
            columns = zip(*((info.uri, info.size, info.etag, info.mtime) for info in page), strict=True)
            listed = pa.RecordBatch.from_arrays(
                [pa.array(c, f.type) for c, f in zip(columns, LISTED, strict=True)], schema=LISTED
            )
            uris = listed.column("uri")
            if page[0].uri <= before or not _ascending(uris):
                raise OutOfOrder
            before = page[-1].uri
            self.listed += len(page)
            fresh = self._without_planned(listed, before)
            if fresh.num_rows:
                yield fresh
        for planned in self._planned:
            for table in planned.rest():
                self._gone(table)

    def _without_planned(self, listed: pa.RecordBatch, last: str) -> pa.RecordBatch:
        """The page's files that are in no generation; looks at those that are, and at what should be in the page."""
        uris = listed.column("uri")
        fresh = np.ones(len(uris), bool)
        for planned in self._planned:
            for table in planned.up_to(last):
                places = pc.index_in(uris, value_set=table["source_uri"])
                found = np.asarray(pc.is_valid(places)) & fresh  # the parts of one catalog may lie in two tables
                self._changes(listed.filter(pa.array(found)), table.take(places.filter(pa.array(found))))
                fresh &= ~found
                self._gone(table.filter(pc.invert(pc.is_in(table["source_uri"], value_set=uris))))
        return listed.filter(pa.array(fresh))

    def _changes(self, now: pa.RecordBatch, was: pa.Table) -> None:
        differs = pc.or_(pc.not_equal(was["etag"], now["etag"]), pc.not_equal(was["size"], now["size"])).combine_chunks()
        now, was = now.filter(differs), was.filter(differs)
        self.changed_count += now.num_rows
        for a, b in zip(was.slice(0, NAMED).to_pylist(), now.slice(0, NAMED).to_pylist(), strict=True):
            if len(self.changed) < NAMED:
                texts = (f"{x['size']} bytes, etag {x['etag']}" for x in (a, b))
                self.changed.append(Change(b["uri"], *texts))

    def _gone(self, planned: pa.Table) -> None:
        names = pc.unique(planned["source_uri"])
        if len(names) and names[0].as_py() == self._last_gone:
            names = names[1:]
        if len(names):
            self._last_gone = names[-1].as_py()
            self.vanished_count += len(names)
            self.vanished.extend(names[: max(0, NAMED - len(self.vanished))].to_pylist())


def _ascending(texts: pa.Array) -> bool:
    return len(texts) < 2 or bool(pc.all(pc.less(texts[:-1], texts[1:])).as_py())


class _Planned:
    """The active files of one generation, which lie in it in order of address."""

    def __init__(self, plan: Plan, generation: Generation) -> None:
        self._tables, self._next = _active(plan, generation), generation.first
        self._waiting = pa.schema([pa.field(n, pa.string() if n != "size" else pa.int64()) for n in _FILE]).empty_table()

    def up_to(self, last: str) -> Iterator[pa.Table]:
        """Those up to the address `last` that were not taken before, in tables of at most PAGE rows. A generation that begins
        later is not opened, and one whose next file comes later costs nothing: a billion pictures lie in hundreds of them."""
        while self._next <= last:
            count = pc.sum(pc.less_equal(self._waiting["source_uri"], last)).as_py() or 0
            if count:
                taken, self._waiting = self._waiting.slice(0, count), self._waiting.slice(count)
                yield taken
            if self._waiting.num_rows:
                self._next = self._waiting["source_uri"][0].as_py()
                return
            following = next(self._tables, None)
            if following is None:
                return
            self._waiting = following

    def rest(self) -> Iterator[pa.Table]:
        yield self._waiting
        yield from self._tables


def _active(plan: Plan, generation: Generation) -> Iterator[pa.Table]:
    """source_uri, size and etag of the rows of shards that are not retired."""
    retired = [shard for shard in generation.shards if shard.key not in plan]
    if len(retired) == len(generation.shards):
        return
    first = 0
    with own_table(plan.objects, generation.uri) as file:
        for batch in file.iter_batches(batch_size=PAGE, columns=_FILE):
            table, end = pa.Table.from_batches([batch]), first + batch.num_rows
            kept, at = [], first
            for shard in retired:
                if shard.first_row < end and shard.first_row + shard.rows > first:
                    kept.append(table.slice(at - first, max(0, shard.first_row - at)))
                    at = max(at, shard.first_row + shard.rows)
            kept.append(table.slice(at - first))
            yield pa.concat_tables(kept)
            first = end
