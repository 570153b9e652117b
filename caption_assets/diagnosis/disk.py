"""Whether the disks suffice for what a dataset will become, from bytes per record that were measured, here or in the store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from caption_assets.config import Config, DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectMissing, ObjectStore, scratch_dir
from caption_assets.core.pictures.gridtars import TAR_BYTES
from caption_assets.core.plan.plans import Plan, load_plan
from caption_assets.core.report.text import plural
from caption_assets.core.tables import table
from caption_assets.diagnosis.findings import Finding, size
from caption_assets.diagnosis.glimpse import Glimpse
from caption_assets.diagnosis.stores import existing

ROW_BYTES = 1_000
"""Of one record in all tables together, besides its original record (kept twice, packed) and its captions."""
CAPTION_BYTES = 800
"""Of one caption: in the replies, in merged and in captions.duckdb."""
MEASURED_SHARDS = 3
AT_WORK = 2
"""Shards at work at once, each with scratch files."""
SCARCE = 0.8


@dataclass(frozen=True)
class Need:
    """records: of the dataset, None where nobody knows yet; each: bytes in the store per record; grid: those of its grid, which
    `keep: until_merged` takes away again; done: the share that is there already; shard: records of a shard at work."""

    records: int | None
    each: float
    grid: float
    done: float
    shard: int
    measured: str


def disks(config: Config, seen: Mapping[str, Glimpse]) -> Iterator[Finding]:
    """The store's disk, where it is one, and the scratch folder's, over all datasets."""
    objects = ObjectStore(config.s3)
    needs = {spec.name: need(objects, Layout(config.store, spec.name), spec, seen.get(spec.name)) for spec in config.datasets}
    scratch = Path(scratch_dir() or tempfile.gettempdir())
    for_scratch = max((AT_WORK * _scratch(n) for n in needs.values()), default=0.0)
    yield _finding("scratch disk", scratch, for_scratch, f"{size(for_scratch)} for {AT_WORK} shards at work", _SCRATCH)
    if "://" in config.store:
        return
    known = {name: n for name, n in needs.items() if n.records is not None}
    wanted = sum(_missing(n, config.dataset(name)) for name, n in known.items())
    said = [f"{name}: {n.records:,} records at {size(n.each)} ({n.measured})" for name, n in known.items()]
    said += [f"{name}: not known before `caption-assets plan {name}`" for name in needs if name not in known]
    yield _finding("store disk", Path(config.store), wanted, f"{size(wanted)} to come; {'; '.join(said)}", _STORE)


_STORE = "make room, set store to a larger disk or to S3, or set grid.keep: until_merged"
_SCRATCH = "make room, or set CAPTION_ASSETS_SCRATCH to a folder on a larger disk"


def _finding(check: str, path: Path, wanted: float, said: str, remedy: str) -> Finding:
    free = shutil.disk_usage(existing(path)).free
    told = f"{size(free)} free, {said}"
    if wanted > free:
        return Finding("problem", check, str(path), told, remedy)
    if wanted > SCARCE * free:
        return Finding("warning", check, str(path), told, remedy)
    return Finding("ok", check, str(path), told)


def need(objects: ObjectStore, layout: Layout, spec: DatasetConfig, glimpse: Glimpse | None) -> Need:
    """What the dataset needs, by its plan and what is in the store; else by what a glimpse of the source saw."""
    plan = load_plan(objects, layout)
    merged = {info.uri for info in objects.list(f"{layout.root}/merged/")}
    done = [shard for shard in plan.shards if layout.merged(shard) in merged]
    share = len(done) / max(1, len(plan.shards))
    measured = _measured(objects, layout, done[:MEASURED_SHARDS])
    if measured:
        records, total, grids = measured
        each, grid, how = total / records, grids / records, f"as in {plural(min(len(done), MEASURED_SHARDS), 'finished shard')}"
    else:
        grid = (glimpse.grid_bytes or 0.0) if glimpse else 0.0
        text = glimpse.record_bytes if glimpse else 0.0
        each = grid + ROW_BYTES + text + CAPTION_BYTES * len(spec.prompts)
        how = "by a grid of its first pictures" if grid else "by the sizes of such rows"
    counted = _planned(plan)
    if counted is None and measured and done:
        counted = round(measured[0] / min(len(done), MEASURED_SHARDS) * len(plan.shards))
    records_in_all = counted if counted is not None else (glimpse.all_records if glimpse else None)
    shard = records_in_all // max(1, len(plan.shards)) if records_in_all and plan.shards else spec.shard_size
    return Need(records_in_all, each, grid, share, min(shard, records_in_all or shard), how)


def _planned(plan: Plan) -> int | None:
    """Records of the plan; None without one, or where it has tars, which planning does not read."""
    counts = [plan.records(shard) for shard in plan.shards]
    return sum(count or 0 for count in counts) if counts and None not in counts else None


def _measured(objects: ObjectStore, layout: Layout, shards: list[str]) -> tuple[int, int, int] | None:
    """(records, bytes of all they became, bytes of their grids) of finished shards."""
    records = total = grids = 0
    for shard in shards:
        try:
            records += table(objects, layout.manifest(shard)).rows
            total += sum(objects.head(uri).size for uri in (layout.manifest(shard), layout.merged(shard), layout.failed(shard)))
        except ObjectMissing:
            continue
        own = sum(info.size for info in objects.list(layout.grids_folder(shard)))
        replies = sum(info.size for info in islice(objects.list(layout.captions_folder(shard)), 10_000))
        grids, total = grids + own, total + own + replies
    return (records, total, grids) if records else None


def _missing(need: Need, spec: DatasetConfig) -> float:
    """Bytes still to be written."""
    left = (need.records or 0) * (1 - need.done)
    if spec.grid.keep == "always":
        return left * need.each
    return left * (need.each - need.grid) + min(left, AT_WORK * need.shard) * need.grid


def _scratch(need: Need) -> float:
    """Of one shard at work: two grid tars, one being written and one on its way, or less; and its tables."""
    return min(2 * TAR_BYTES, need.shard * need.grid) + need.shard * (need.each - need.grid)
