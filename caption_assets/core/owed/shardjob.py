"""One shard on its way through captions: what the job is, and its records by number, without ever holding them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from caption_assets.config import DatasetConfig, EngineConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.core.owed.cellkeys import KeyIndex, hash_keys
from caption_assets.core.replies.chunks import replaced_shards
from caption_assets.core.shardrows import beside
from caption_assets.core.tables import TableHandle, table

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ShardJob:
    """One shard to be captioned. recipes: by output name, in config order; run_id: the run's own id, root_run_id: that of the
    run it re-executes (else its own)."""

    objects: ObjectStore
    layout: Layout
    spec: DatasetConfig
    engine: EngineConfig
    shard: str
    recipes: dict[str, str]
    revision: str | None
    run_id: str
    root_run_id: str
    manifest: TableHandle
    mapping: TableHandle

    @cached_property
    def replaced(self) -> list[str]:
        """Shards whose replies count for this one, where record_id and sha256 are equal."""
        return replaced_shards(self.objects, self.layout, self.manifest.metadata)


class JobRows:
    """The shard's records, manifest and mapping side by side."""

    def __init__(self, job: ShardJob) -> None:
        self.job = job
        self.count = job.manifest.rows

    def batches(
        self, manifest_columns: Sequence[str] = (), mapping_columns: Sequence[str] = ()
    ) -> Iterator[tuple[int, pa.Table, pa.Table]]:
        """(number of the first record, manifest part, mapping part) in order; both parts have record_id and reason, and the
        mapping's rows are null where the manifest has a fault. Raises core.shardrows.Mismatch."""
        job, start = self.job, 0
        left, right = (list(dict.fromkeys(("record_id", "reason", *names))) for names in (manifest_columns, mapping_columns))
        for rows, shown in beside(job.objects, job.manifest, job.mapping, left, right):
            yield start, rows, shown
            start += rows.num_rows

    @cached_property
    def leaders(self) -> npt.NDArray[np.int32] | None:
        """For a duplicate the number of its first copy, else -1; None where the shard has no duplicates."""
        copies, names = [], []
        for start, _, shown in self.batches(mapping_columns=["duplicate_of"]):
            column = shown["duplicate_of"]
            if column.null_count < len(column):
                copies.append(np.flatnonzero(column.is_valid().to_numpy()) + start)
                names.append(hash_keys(column.drop_null().to_pylist()))
        if not copies:
            return None
        wanted, leaders = np.concatenate(names), np.full(self.count, -1, np.int32)
        originals = np.unique(wanted, axis=0)
        lookup, first = KeyIndex(originals), np.full(len(originals), -1, np.int32)
        for start, rows, _ in self.batches():
            at = lookup.find(hash_keys(rows["record_id"].to_pylist()))
            first[at[at >= 0]] = np.flatnonzero(at >= 0) + start
        leaders[np.concatenate(copies)] = first[lookup.find(wanted)]
        return leaders

    @cached_property
    def pictures(self) -> npt.NDArray[np.uint64]:
        """The first 64 bits of each picture's sha256; 0 where it has none."""
        hashes = np.zeros(self.count, np.uint64)
        for start, _, shown in self.batches(mapping_columns=["sha256"]):
            hashes[start : start + len(shown)] = _hashes(shown)
        return hashes

    def same_pictures(self, shard: str) -> Bools:
        """Which records another shard holds too, with the same record_id and picture."""
        same = np.zeros(self.count, bool)
        try:
            mapping = table(self.job.objects, self.job.layout.mapping(shard))
        except ObjectMissing:
            return same
        index = KeyIndex(np.concatenate([hash_keys(rows["record_id"].to_pylist()) for _, rows, _ in self.batches()]))
        for batch in mapping.batches(self.job.objects, ["record_id", "sha256"]):
            at, hashes = index.find(hash_keys(batch["record_id"].to_pylist())), _hashes(batch)
            known = at >= 0
            same[at[known]] = (self.pictures[at[known]] == hashes[known]) & (hashes[known] != 0)
        return same


def _hashes(rows: pa.Table | pa.RecordBatch) -> npt.NDArray[np.uint64]:
    return np.array([int(sha[:16], 16) if sha else 0 for sha in rows["sha256"].to_pylist()], np.uint64)
