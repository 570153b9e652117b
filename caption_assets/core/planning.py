"""Planning: what a source holds, cut into shards once. What changed since is reported, and never planned again unasked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.config import DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectInfo, ObjectStore
from caption_assets.core.plan.accepting import replace_changed
from caption_assets.core.plan.comparing import Change, Comparison, OutOfOrder
from caption_assets.core.plan.generations import GenerationTaken, GenerationWriter
from caption_assets.core.plan.plans import Plan, PlanEntry, PlanError, SourceChanged, load_plan
from caption_assets.core.plan.sharding import (
    File,
    Keys,
    Shard,
    catalog_groups,
    picture_rows,
    piece_rows,
    portions,
    records_of,
    tar_groups,
)
from caption_assets.core.sources.listing import TEXT, detect, files_of, possible_roots, root_of
from caption_assets.core.sources.names import tar_stem

__all__ = ["Plan", "PlanEntry", "PlanError", "PlanResult", "SourceChanged", "load_plan", "make_plan", "new_objects"]

ATTEMPTS = 10


@dataclass
class PlanResult:
    """What planning found. plan: as it is now. pending: tars held back until their group is full. unsettled: new files too young
    to be planned. changed, vanished: planned files, the first 1,000 by name and all counted; ignored: files of other kinds."""

    plan: Plan
    new_shards: list[str] = field(default_factory=list)
    new_files: int = 0
    pending: list[str] = field(default_factory=list)
    unsettled: int = 0
    changed: list[Change] = field(default_factory=list)
    changed_count: int = 0
    vanished: list[str] = field(default_factory=list)
    vanished_count: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    dataset: str = ""

    @property
    def problems(self) -> list[str]:
        """In words, what somebody should look at."""
        lines = [
            f"{change.uri} changed since it was planned (was {change.was}; is {change.now}); if that is right: "
            f"caption-assets plan {self.dataset} --accept-changed {change.uri}"
            for change in self.changed[:20]
        ]
        if self.changed_count > 20:
            lines.append(f"{self.changed_count} planned files changed in all")
        if self.vanished_count:
            lines.append(f"{self.vanished_count} planned files are gone from the source, such as {self.vanished[0]}")
        return lines

    def take(self, comparison: Comparison) -> None:
        """Adds what changed or is gone, of one kind of sources that was listed to its end."""
        self.changed += comparison.changed
        self.vanished += comparison.vanished
        self.changed_count += comparison.changed_count
        self.vanished_count += comparison.vanished_count

    def summary(self) -> dict[str, Any]:
        """Figures for the metadata."""
        return {
            "shards": len(self.plan.shards),
            "new_shards": len(self.new_shards),
            "new_files": self.new_files,
            "changed_files": self.changed_count,
            "vanished_files": self.vanished_count,
            "pending_files": len(self.pending),
            "unsettled_files": self.unsettled,
            "ignored": self.ignored.total(),
        }


def make_plan(
    objects: ObjectStore,
    layout: Layout,
    spec: DatasetConfig,
    *,
    accept_changed: str | None = None,
    hold_back_short_groups: bool = False,
    settle_s: float = 0,
) -> PlanResult:
    """Plans the files that no shard has, as further generations.

    accept_changed: a planned file that changed; its shards are first planned anew under new keys. hold_back_short_groups: leaves
    the last tars for later when they fill no group. settle_s: leaves files for later that are younger. Raises PlanError for a
    source that is empty, missing or of no known format, ObjectError when the store fails. Others may plan at the same time.
    """
    newest = time.time() - settle_s if settle_s else float("inf")
    for _ in range(ATTEMPTS):
        result = PlanResult(load_plan(objects, layout), dataset=spec.name)
        try:
            if accept_changed is not None:
                result.new_shards += replace_changed(objects, layout, spec, result.plan, accept_changed)
                accept_changed = None
                result.plan = load_plan(objects, layout)
            for kind, sources in kinds_of_sources(objects, layout, spec, result.plan).items():
                _plan_kind(objects, layout, spec, result, kind, sources, hold_back_short_groups, newest)
                result.plan = load_plan(objects, layout)
            return result
        except GenerationTaken:
            continue
    raise PlanError(f"{layout.plan_folder}: others plan all the time; try again")


def new_objects(objects: ObjectStore, layout: Layout, spec: DatasetConfig) -> PlanResult:
    """What planning would find, without planning: lists up to the first file that no shard has (`new_files` is then 1). Changed
    and vanished files are told when there is none."""
    result = PlanResult(load_plan(objects, layout), dataset=spec.name)
    for kind, sources in kinds_of_sources(objects, layout, spec, result.plan).items():
        comparison = Comparison(result.plan, planned_kind(kind))
        if next(comparison.new(source_files(objects, layout, sources, kind, Counter())), None) is not None:
            result.new_files = 1
            break
        result.take(comparison)
    return result


def kinds_of_sources(objects: ObjectStore, layout: Layout, spec: DatasetConfig, plan: Plan) -> dict[str, list[str]]:
    """The sources by their kind (as `detect` has it), which stays what it was when the source was first planned."""
    kinds: dict[str, list[str]] = {}
    for source in spec.source:
        kind = plan.kinds.get(source)
        if kind is None or spec.format not in ("auto", planned_kind(kind)):
            kind = detect(objects, spec, source, _skip(layout, source))
        kinds.setdefault(kind, []).append(source)
    return kinds


def planned_kind(kind: str) -> str:
    return "jsonl" if kind == TEXT else kind


def _skip(layout: Layout, source: str) -> str | None:
    """The store, when it lies within the source: what this program wrote is no source."""
    store = f"{layout.store.rstrip('/')}/"
    return None if source.startswith(store) else store


def source_files(
    objects: ObjectStore, layout: Layout, sources: list[str], kind: str, ignored: Counter[str], stems: Counter[str] | None = None
) -> Iterator[ObjectInfo]:
    """The files of one kind in order. An empty catalog holds nothing to plan. stems: to count those of all tars in."""
    skips = {_skip(layout, source) for source in sources}
    for info in files_of(objects, sources, kind, ignored, None if None in skips else skips.pop()):
        if info.size == 0 and planned_kind(kind) == "jsonl":
            ignored["empty"] += 1
            continue
        if stems is not None:
            stems[tar_stem(info.uri)] += 1
        yield info


def _plan_kind(
    objects: ObjectStore,
    layout: Layout,
    spec: DatasetConfig,
    result: PlanResult,
    kind: str,
    sources: list[str],
    hold_back: bool,
    newest: float,
) -> None:
    """Plans the new files of sources of one kind."""
    stems: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    files = source_files(objects, layout, sources, kind, ignored, stems if kind == "webdataset" else None)
    comparison = Comparison(result.plan, planned_kind(kind))
    writer = GenerationWriter(objects, layout, len(result.plan.generations), planned_kind(kind), dict.fromkeys(sources, kind))
    keys = Keys(result.plan, spec)
    fresh = _settled(_not_moved(comparison.new(files), spec, result.plan), newest, result)
    try:
        for shard in _shards(objects, spec, keys, planned_kind(kind), fresh, stems, hold_back, result, writer):
            writer.add(shard)
            result.new_shards.append(shard.key)
    except OutOfOrder:
        raise PlanError(f"{', '.join(sources)}: the store lists its objects in no order; this is not supported") from None
    writer.close()
    if not comparison.listed and not result.plan.generations:
        raise PlanError(f"{', '.join(sources)}: holds no {planned_kind(kind)} files ({ignored.total()} others)")
    result.ignored += ignored
    result.take(comparison)


def _not_moved(batches: Iterator[pa.RecordBatch], spec: DatasetConfig, plan: Plan) -> Iterator[pa.RecordBatch]:
    """Raises PlanError where the config names another source than was planned, and a file has the place below its root that a
    planned file has: records would be asked, and paid for, again under ids that are taken. Looks at one file of each batch."""
    roots = {root for source in plan.kinds if source not in spec.source for root in possible_roots(source)}
    for batch in batches:
        uri = batch.column("uri")[0].as_py()
        name = uri[len(root_of(spec, uri)) :]
        for planned in sorted(f"{root}{name}" for root in roots):
            if planned != uri and plan.shards_of(planned):
                raise PlanError(
                    f"{uri}: is planned as {planned}, and a source that was moved would be asked anew. Put it back (a link will "
                    "do); if these are other pictures, name both sources in a list, or make a dataset of their own"
                )
        yield batch


def _settled(batches: Iterator[pa.RecordBatch], newest: float, result: PlanResult) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        settled = batch.filter(pc.less_equal(batch.column("mtime"), newest))
        result.unsettled += batch.num_rows - settled.num_rows
        result.new_files += settled.num_rows
        if settled.num_rows:
            yield settled


def _shards(
    objects: ObjectStore,
    spec: DatasetConfig,
    keys: Keys,
    kind: str,
    fresh: Iterator[pa.RecordBatch],
    stems: Counter[str],
    hold_back: bool,
    result: PlanResult,
    writer: GenerationWriter,
) -> Iterator[Shard]:
    """The new files as shards, in plan order, and generations between them."""
    if kind == "images":
        for tables in portions(fresh, spec.shard_size):
            writer.between_files()
            key = keys.numbered()
            yield Shard(key, None, (), (picture_rows(key, table, writer.number) for table in tables))
        return
    files = (File(row["uri"], row["size"], row["etag"]) for batch in fresh for row in batch.to_pylist())
    if kind == "webdataset":
        groups, held = tar_groups(list(files), spec.group_tars, hold_back)
        result.pending += [file.uri for file in held]
        result.new_files -= len(held)
        named = ((keys.of_tar(group[0].file.uri, stems), group) for group in groups)
    else:
        named = ((keys.numbered(), group) for group in catalog_groups(objects, kind, files, spec.shard_size))
    for key, group in named:
        if group[0].start == 0:
            writer.between_files()
        yield Shard(key, records_of(group), (), piece_rows(key, kind, group, writer.number, None))
