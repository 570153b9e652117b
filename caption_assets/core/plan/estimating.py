"""About how many records a shard has, where the plan does not count them: tars are not read when they are planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow.parquet as pq

from caption_assets.core.plan.plans import Plan
from caption_assets.core.tables import own_table


def bytes_of(plan: Plan, shards: Iterable[str]) -> dict[str, int]:
    """Bytes of the source in each of these shards."""
    wanted, found = set(shards), Counter[str]()
    for generation in plan.generations:
        if wanted.isdisjoint(shard.key for shard in generation.shards):
            continue
        with own_table(plan.objects, generation.uri) as file:
            _add(file, wanted, found)
    return dict(found)


def _add(file: pq.ParquetFile, wanted: set[str], found: Counter[str]) -> None:
    for batch in file.iter_batches(columns=["shard", "byte_length", "size"]):
        columns = (batch.column(name).to_pylist() for name in ("shard", "byte_length", "size"))
        for shard, length, size in zip(*columns, strict=True):
            if shard in wanted:
                found[shard] += size if length is None else length


def records_expected(plan: Plan, shards: Iterable[str], known: Mapping[str, float]) -> dict[str, float | None]:
    """Records of each shard: as known, else as planned, else by its bytes, of which other shards have so many a record. None
    where nothing is known of any; where all are like that, their bytes take the place of records: the proportion is right."""
    chosen = list(shards)
    counts = {shard: known.get(shard, plan.records(shard)) for shard in chosen}
    if None not in counts.values():
        return counts
    sizes = bytes_of(plan, {*chosen, *known})
    told = [shard for shard in sizes if known.get(shard)]
    sized = sum(sizes[shard] for shard in told)
    if sized:
        each = sum(known[shard] for shard in told) / sized
    elif any(count is not None for count in counts.values()):
        return counts
    else:
        each = 1.0
    return {shard: sizes.get(shard, 0) * each if count is None else count for shard, count in counts.items()}
