"""`caption-assets status`: a table over all datasets, or JSON; the same that the UI shows."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

import dagster as dg

from caption_assets.commands import terminal
from caption_assets.commands.workplace import DONE, Workplace
from caption_assets.liveness import clear_dead_runs
from caption_assets.partitions import Dataset
from caption_assets.shards import ShardState, dataset_state

STATUSES = ("done", "out_of_date", "running", "waiting", "failed", "missing")


def status(place: Workplace, as_json: bool) -> int:
    cleared = clear_dead_runs(place.instance, place.datasets, place.objects)
    found = dataset_states(place)
    if as_json:
        print(json.dumps({"datasets": [_as_json(*item) for item in found]}))
        return DONE
    for run_id in cleared:
        print(f"run {run_id[:8]} was dead: marked failed, its slots are free")
    terminal.table(("dataset", "shards", *STATUSES, "records", "captioned", "failed records"), [_row(*item) for item in found])
    for name, _, shards in found:
        for shard in shards:
            if shard.status == "failed":
                print(f"{name}/{shard.shard}: its last run failed (run {(shard.run_id or '')[:8]})")
    return DONE


def dataset_states(place: Workplace) -> list[tuple[str, str, list[ShardState]]]:
    """(name, recipe, shards) of every dataset."""
    found = []
    for ds in place.datasets:
        state = dataset_state(place.instance, ds, place.objects)
        found.append((ds.name, state.recipe, [state.state(shard) for shard in state.shards]))
    return found


def _row(name: str, recipe: str, shards: list[ShardState]) -> tuple[Any, ...]:
    counts = Counter(shard.status for shard in shards)
    sums = [sum(getattr(shard, key) or 0 for shard in shards) for key in ("records", "captioned", "failed")]
    return (name, len(shards), *[counts.get(key, 0) for key in STATUSES], *sums)


def _as_json(name: str, recipe: str, shards: list[ShardState]) -> dict[str, Any]:
    keys = ("shard", "status", "records", "captioned", "failed", "run_id")
    return {"name": name, "recipe": recipe, "shards": [{key: getattr(shard, key) for key in keys} for shard in shards]}


def watch(place: Workplace, every_s: float = 5.0) -> int:
    """The table and what is at work, again and again until interrupted; runs may have been started anywhere."""
    while True:
        print("\033[H\033[J" if sys.stdout.isatty() else "", end="")
        status(place, as_json=False)
        rows = [row for ds in place.datasets for row in _at_work(place, ds)]
        if rows:
            print()
            terminal.table(("shard", "stage", "records so far", "pictures/s now", "average", "left"), rows)
        sys.stdout.flush()
        time.sleep(every_s)


def _at_work(place: Workplace, ds: Dataset) -> list[tuple[Any, ...]]:
    """Shards of the dataset that run now, from the observations their runs write."""
    rows = []
    for shard, (kind, run_id) in dataset_state(place.instance, ds, place.objects).at_work.items():
        if kind != "running":
            continue
        seen = [o for asset in ("captions", "recaptions") for o in _observations(place, ds, asset, shard, run_id)]
        seen.sort(key=lambda observed: observed[0], reverse=True)
        if not seen:
            rows.append((f"{ds.name}/{shard}", "starting", *[None] * 4))
            continue
        (at, stage, figures), before = seen[0], next((o for o in seen[1:] if o[1] == seen[0][1]), None)
        average, done = figures["images_per_s"], figures["records_so_far"]
        now = (done - before[2]["records_so_far"]) / (at - before[0]) if before and at > before[0] else average
        left = terminal.duration(figures["eta_s"]) if "eta_s" in figures else None
        rows.append((f"{ds.name}/{shard}", stage, f"{done:,}", f"{now:,.1f}", f"{average:,.1f}", left))
    return rows


def _observations(place: Workplace, ds: Dataset, asset: str, shard: str, run_id: str) -> list[tuple[float, str, dict[str, Any]]]:
    chosen = dg.AssetRecordsFilter(asset_key=ds.key(asset), asset_partitions=[shard])
    records = place.instance.fetch_observations(chosen, limit=2).records
    return [
        (record.timestamp, asset, {key: value.value for key, value in record.asset_observation.metadata.items()})
        for record in records
        if record.run_id == run_id and record.asset_observation is not None
    ]
