"""The page of a dataset: what is done, what failed and why, what it cost, when the rest will be ready; links to the shards."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caption_assets.config import EngineConfig
from caption_assets.core.layout import Layout
from caption_assets.core.merging import read_pair
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.plans import load_plan
from caption_assets.core.report import costs, plots
from caption_assets.core.report.figures import ShardFigures, load_figures, save_figures
from caption_assets.core.report.reading import total_lengths
from caption_assets.core.report.rendering import render
from caption_assets.core.report.shardpage import SHOWN, Recipe, by_count, page_version, write_shard_report

ROWS = 1000
"""Shards in a table."""
BUDGET_S = 3600.0
"""After so long no further page of a shard is begun: the next report goes on with them."""
SAVE_EVERY = 50


@dataclass
class Report:
    """What was written. shards: with a page; left_out: not finished; waiting: finished, their pages are still to be made."""

    uri: str
    shards: list[ShardFigures] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    totals: Totals | None = None


@dataclass(frozen=True)
class Totals:
    """Over the shards that have a page. gpu_hours: of the endpoints' time at work; records_left: an estimate where the plan does
    not count them (tars); eta_s: at the rate seen so far, pauses left out."""

    records: int
    captioned: int
    failed: int
    duplicates: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    engine_s: float
    wall_s: float
    gpus: int
    records_left: int | None

    @property
    def coverage(self) -> float | None:
        return self.captioned / self.records if self.records else None

    @property
    def rate(self) -> float | None:
        """Records per second at work."""
        return self.records / self.wall_s if self.wall_s else None

    @property
    def gpu_hours(self) -> float | None:
        return self.engine_s * self.gpus / 3600 if self.engine_s else None

    @property
    def gpu_hours_per_million(self) -> float | None:
        return costs.per_million(self.gpu_hours or 0.0, self.captioned)

    @property
    def eta_s(self) -> float | None:
        return self.records_left / self.rate if self.records_left is not None and self.rate else None


def write_dataset_report(
    objects: ObjectStore,
    layout: Layout,
    recipe: Recipe,
    shards: Sequence[str],
    left_out: Sequence[str],
    *,
    shown: int = SHOWN,
    budget_s: float = BUDGET_S,
) -> Report:
    """Writes the pages of those of `shards` (finished, in the order of the plan) that changed, and the dataset's page.

    A shard whose merged and failed are not of one merge counts as left out. Raises ObjectError when a store is down.
    """
    report, end = Report(layout.report_index, left_out=list(left_out)), time.monotonic() + budget_s
    known = load_figures(objects, layout)
    pages = {info.uri for info in objects.list(layout.report_folder)}
    _forget(objects, layout, known, {*shards, *left_out})
    for shard in shards:
        pair = read_pair(objects, layout, shard)
        if pair is None:
            report.left_out.append(shard)
            known.pop(shard, None)
        elif layout.report_page(shard) not in pages or shard not in known or known[shard].version != page_version(pair):
            if time.monotonic() > end:
                report.waiting.append(shard)
                known.pop(shard, None)
                continue
            known[shard] = write_shard_report(objects, layout, shard, pair, recipe, shown)
            report.written.append(shard)
            if len(report.written) % SAVE_EVERY == 0:
                save_figures(objects, layout, known.values())
    save_figures(objects, layout, known.values())
    report.shards = [known[shard] for shard in shards if shard in known]
    report.totals = _totals(objects, layout, recipe.engine, report)
    objects.put(report.uri, _page(layout, recipe, report, report.totals))
    return report


def _forget(objects: ObjectStore, layout: Layout, known: dict[str, ShardFigures], planned: set[str]) -> None:
    """Takes away the pages of shards that are no more."""
    for shard in [shard for shard in known if shard not in planned]:
        objects.delete(layout.report_page(shard))
        del known[shard]


def _totals(objects: ObjectStore, layout: Layout, engine: EngineConfig, report: Report) -> Totals:
    def total(name: str) -> int:
        return sum(getattr(f, name) for f in report.shards)

    def spent(name: str) -> int:
        return sum(getattr(f.costs, name) for f in report.shards)

    busy = costs.union([f.costs.busy for f in report.shards])
    return Totals(
        records=total("records"),
        captioned=total("captioned"),
        failed=total("failed"),
        duplicates=total("duplicates"),
        requests=spent("requests"),
        prompt_tokens=spent("prompt_tokens"),
        completion_tokens=spent("completion_tokens"),
        engine_s=costs.engine_seconds(busy),
        wall_s=costs.wall_seconds(busy),
        gpus=costs.gpus_per_endpoint(engine),
        records_left=_records_left(objects, layout, report),
    )


def _records_left(objects: ObjectStore, layout: Layout, report: Report) -> int | None:
    """Of the shards that are left out; those that the plan does not count are taken to be like the finished ones."""
    plan = load_plan(objects, layout)
    counts = [plan.records(shard) for shard in report.left_out if shard in plan]
    known = sum(count for count in counts if count is not None)
    unknown = sum(count is None for count in counts)
    if not unknown:
        return known
    if not report.shards:
        return None
    return known + round(unknown * sum(f.records for f in report.shards) / len(report.shards))


def _page(layout: Layout, recipe: Recipe, report: Report, totals: Totals) -> bytes:
    shards, made = report.shards, {f.shard: layout.report_page(f.shard).rsplit("/", 1)[1] for f in report.shards}
    rows = sorted(shards, key=lambda f: f.coverage)
    return render(
        "index.html",
        title=layout.dataset,
        totals=totals,
        rows=[(f, made[f.shard], _rate(f)) for f in rows[:ROWS]],
        shards=len(shards),
        left_out=report.left_out[:ROWS],
        left_out_count=len(report.left_out),
        waiting=report.waiting[:ROWS],
        waiting_count=len(report.waiting),
        other_recipe=sum(f.recipe != recipe.dataset for f in shards),
        reasons=by_count(_reasons(shards)),
        recipe=recipe.described(),
        lengths=plots.lengths(total_lengths([f.lengths for f in shards])),
        coverage=plots.by_shard([100 * f.coverage for f in shards], "captioned, %", 104) if len(shards) > 1 else None,
        rates=plots.by_shard([_rate(f) for f in shards], "records/s") if len(shards) > 1 else None,
    )


def _rate(figures: ShardFigures) -> float | None:
    wall = costs.wall_seconds(figures.costs.busy)
    return figures.records / wall if wall else None


def _reasons(shards: Sequence[ShardFigures]) -> Mapping[str, tuple[int, str]]:
    """Over all shards; the example is of the first that has one, with its shard."""
    found: dict[str, tuple[int, str]] = {}
    for figures in shards:
        for reason, (count, example) in figures.reasons.items():
            before, said = found.get(reason, (0, ""))
            found[reason] = (before + count, said or (f"{figures.shard}: {example}" if example else ""))
    return found


def report_metadata(report: Report) -> dict[str, Any]:
    """Figures for whoever materializes the report."""
    totals = report.totals
    assert totals is not None
    figures = {
        "path": report.uri,
        "shards": len(report.shards),
        "pages_written": len(report.written),
        "pages_waiting": len(report.waiting),
        "left_out": len(report.left_out),
        "records": totals.records,
        "captioned": totals.captioned,
        "failed": totals.failed,
        "coverage": totals.coverage,
        "requests": totals.requests,
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "engine_seconds": round(totals.engine_s, 1),
        "gpu_hours_per_million": totals.gpu_hours_per_million,
        "eta_s": totals.eta_s,
    }
    return {name: value for name, value in figures.items() if value is not None}
