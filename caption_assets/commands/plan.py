"""`caption-assets plan`: what the source holds, cut into shards; and how a changed file is accepted."""

from __future__ import annotations

from caption_assets.commands.run import ensure_plan
from caption_assets.commands.workers import Workers
from caption_assets.commands.workplace import DONE, FAILED, Workplace
from caption_assets.core.report.text import plural


def plan(place: Workplace, name: str, accept_changed: str | None) -> int:
    from caption_assets.assets.plan import register_shards
    from caption_assets.core.planning import make_plan

    (ds,) = place.chosen([name])
    if accept_changed:
        result = make_plan(place.objects, ds.layout, ds.spec, accept_changed=accept_changed)
        register_shards(place.instance, ds, result.plan)
    with Workers() as workers:
        made = ensure_plan(place, workers, ds)
    if made is None:
        return FAILED
    shards = made.shards
    print(f"{ds.name}: {plural(len(shards), 'shard')}" + (f", {shards[0]} to {shards[-1]}" if shards else ""))
    return DONE
