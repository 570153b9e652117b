"""`caption-assets status`: a table over all datasets, or JSON; the same that the UI shows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from caption_assets.commands import terminal
from caption_assets.commands.workplace import DONE, Workplace
from caption_assets.core.report.text import brief
from caption_assets.display import plain
from caption_assets.liveness import clear_dead_runs
from caption_assets.partitions import Dataset
from caption_assets.presence import started_by
from caption_assets.shards import DatasetState, ShardState, dataset_state

SHOWN = 4
STATUSES = ("done", "out_of_date", "running", "waiting", "failed", "missing")


@dataclass(frozen=True)
class Seen:
    """One dataset, looked at once."""

    ds: Dataset
    state: DatasetState
    shards: list[ShardState]


def status(place: Workplace, as_json: bool) -> int:
    cleared = clear_dead_runs(place.instance, place.datasets, place.objects)
    found = look(place)
    if as_json:
        print(json.dumps({"datasets": [_as_json(seen) for seen in found]}))
        return DONE
    for run_id in cleared:
        print(f"run {run_id[:8]} was dead: marked failed, its slots are free")
    say(found)
    return DONE


def look(place: Workplace) -> list[Seen]:
    """Every dataset as it is now."""
    found = []
    for ds in place.datasets:
        state = dataset_state(place.instance, ds, place.objects)
        found.append(Seen(ds, state, [state.state(shard) for shard in state.shards]))
    return found


def say(found: list[Seen]) -> None:
    """The table, what it cost, who is at work, and the shards that failed."""
    terminal.table(("dataset", "shards", *STATUSES, "records", "captioned", "failed records"), [_row(seen) for seen in found])
    for seen in found:
        costs = _costs(seen)
        if "gpu_hours_per_million" in costs:
            print(
                f"{seen.ds.name}: {brief(costs['gpu_hours'])} GPU-hours so far, "
                f"{brief(costs['gpu_hours_per_million'])} for a million pictures"
            )
        for who, shards in _people(seen).items():
            shown = ", ".join(shards[:SHOWN]) + (f" and {len(shards) - SHOWN} more" if len(shards) > SHOWN else "")
            print(f"{seen.ds.name}: {plain(who)} is at work on {shown}")
        for shard in seen.shards:
            if shard.status == "failed":
                print(f"{seen.ds.name}/{shard.shard}: its last run failed (run {str(shard.run_id)[:8]})")


def _costs(seen: Seen) -> dict[str, float]:
    """GPU-hours of the merged shards, and what a million pictures take at that; of shards whose costs are known."""
    from caption_assets.core.report import costs

    known = [figures for figures in seen.state.counts.values() if "engine_spans" in figures]
    hours = costs.gpu_hours(costs.union([figures["engine_spans"] for figures in known]), seen.ds.engine)
    per_million = costs.per_million(hours, sum(figures["captioned"] for figures in known))
    return {"gpu_hours": hours, **({"gpu_hours_per_million": per_million} if per_million is not None else {})}


def _people(seen: Seen) -> dict[str, list[str]]:
    """Shards at work by who started their runs."""
    found: dict[str, list[str]] = {}
    for shard, run in seen.state.runs_at_work.items():
        if seen.state.at_work[shard][0] == "running":
            found.setdefault(started_by(run) or "somebody", []).append(shard)
    return {who: sorted(shards) for who, shards in sorted(found.items())}


def _row(seen: Seen) -> tuple[Any, ...]:
    counts = Counter(shard.status for shard in seen.shards)
    sums = [sum(getattr(shard, key) or 0 for shard in seen.shards) for key in ("records", "captioned", "failed")]
    return (seen.ds.name, *(f"{n:,}" for n in (len(seen.shards), *[counts.get(key, 0) for key in STATUSES], *sums)))


def _as_json(seen: Seen) -> dict[str, Any]:
    keys = ("shard", "status", "records", "captioned", "failed", "run_id")
    shards = [{key: getattr(shard, key) for key in keys} for shard in seen.shards]
    return {"name": seen.ds.name, "recipe": seen.state.recipe, **_costs(seen), "shards": shards}
