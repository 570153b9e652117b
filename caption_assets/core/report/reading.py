"""One pass over merged and failed of a shard: a sample of records, how long texts are, and what made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.core.merging import Pair
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.report.sampling import CAPTIONED, Bools, Sample
from caption_assets.core.tables import TableHandle

FINE_CHARS, MOST_CHARS = 100, 4000
EDGES = np.r_[0:FINE_CHARS:2, FINE_CHARS : MOST_CHARS + 1 : 10]
"""Characters at which bins of lengths begin: 2 wide up to FINE_CHARS, then 10; the last holds all that are longer."""
MADE_WITH = ("recipe", "model", "revision")
_RECORD = ["record_id", "id", "uri", "width", "height", "format", "file_bytes", "sha256", "duplicate_of"]
_ABOUT = ("finish_reason", "attempt", "prompt_tokens", "completion_tokens", "latency_ms")
_FAILED = ["record_id", "id", "uri", "reason", "detail", "retryable", "attempt"]


@dataclass
class ShardRead:
    """outputs: names, in the order of the columns. rows: the sample by record_id, as in merged or failed. lengths: of valid texts
    by output, records per bin. made_with: the values of MADE_WITH by output."""

    outputs: list[str]
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    lengths: dict[str, list[int]] = field(default_factory=dict)
    made_with: dict[str, set[tuple[str | None, ...]]] = field(default_factory=dict)


def read_shard(objects: ObjectStore, pair: Pair, limit: int) -> ShardRead:
    """Reads both tables in batches. limit: records in the sample."""
    names = pair.merged.schema.names
    read = ShardRead([name for name in names if f"{name}_info" in names])
    sample, lengths = Sample(limit), {name: np.zeros(len(EDGES), np.int64) for name in read.outputs}
    read.made_with = {name: set() for name in read.outputs}
    columns = [*_RECORD]
    for name in read.outputs:
        columns += [name, f"{name}_reason", *(f"{name}_info.{key}" for key in (*MADE_WITH, *_ABOUT))]
    for rows in _batches(objects, pair.merged, columns):
        sample.add(rows, _groups(rows, [f"{name}_reason" for name in read.outputs]))
        for name in read.outputs:
            lengths[name] += _lengths(rows[name])
            read.made_with[name] |= _made_with(rows[f"{name}_info"])
    for rows in _batches(objects, pair.failed, _FAILED):
        sample.add(rows, _groups(rows, ["reason"]))
    read.rows = sample.chosen()
    read.lengths = {name: np.trim_zeros(counts, "b").tolist() for name, counts in lengths.items()}
    return read


def _batches(objects: ObjectStore, handle: TableHandle, columns: list[str]) -> Iterator[pa.Table]:
    for batch in handle.batches(objects, columns):
        yield pa.Table.from_batches([batch])


def _groups(rows: pa.Table, columns: list[str]) -> dict[str, Bools]:
    """Members of each reason in any of the columns, and of CAPTIONED."""
    found: dict[str, Bools] = {}
    whole = np.ones(rows.num_rows, bool)
    for column in columns:
        for reason in pc.unique(rows[column]).drop_null().to_pylist():
            members = pc.fill_null(pc.equal(rows[column], reason), False).to_numpy()
            found[reason] = found[reason] | members if reason in found else members
            whole &= ~members
    return {**found, CAPTIONED: whole} if whole.any() else found


def _lengths(texts: pa.ChunkedArray) -> Any:
    bins = np.searchsorted(EDGES, pc.utf8_length(texts.drop_null()).to_numpy(), "right") - 1
    return np.bincount(bins, minlength=len(EDGES))


def _made_with(info: pa.ChunkedArray) -> set[tuple[str | None, ...]]:
    made = pa.table({key: pc.struct_field(info, key) for key in MADE_WITH}).filter(pc.is_valid(info))
    values = made.group_by(list(MADE_WITH)).aggregate([]).to_pylist()
    return {tuple(row[key] for key in MADE_WITH) for row in values}


def total_lengths(shards: list[dict[str, list[int]]]) -> dict[str, list[int]]:
    """The bins of several shards added up."""
    totals: dict[str, Counter[int]] = {}
    for lengths in shards:
        for name, counts in lengths.items():
            totals.setdefault(name, Counter()).update(dict(enumerate(counts)))
    return {name: [found[i] for i in range(max(found, default=-1) + 1)] for name, found in totals.items()}
