"""`caption-assets status`: a table over all datasets, or JSON; the same that the UI shows."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from caption_assets.commands import terminal
from caption_assets.commands.workplace import DONE, Workplace
from caption_assets.liveness import clear_dead_runs
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
