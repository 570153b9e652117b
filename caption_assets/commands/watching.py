"""`caption-assets status --watch`: what is at work, how fast, and when it will be done; of runs started anywhere, from the
observations and materializations that they leave in Dagster."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

from caption_assets.commands import terminal
from caption_assets.commands.status import Seen, look, say
from caption_assets.commands.workplace import Workplace
from caption_assets.liveness import clear_dead_runs
from caption_assets.pace import Span, rate_until

EVENTS = 60
"""Latest observations and materializations that are looked at, each."""
WINDOW_S = 120.0


@dataclass(frozen=True)
class Told:
    """What a shard that is asked has told of itself. at: seconds since 1970; figures: of the observation."""

    at: float
    stage: str
    figures: dict[str, Any]

    @property
    def done(self) -> float:
        return float(self.figures["records_so_far"])

    def more_by(self, now: float) -> float:
        """What it still wants, if it has gone on at its pace since."""
        since = (now - self.at) * float(self.figures["images_per_s_now"])
        return max(0.0, float(self.figures.get("records_to_ask", self.done)) - self.done - since)


def watch(place: Workplace, every_s: float = 5.0) -> int:
    """The table and what is at work, again and again until interrupted."""
    while True:
        clear_dead_runs(place.instance, place.datasets, place.objects)
        found = look(place)
        print("\033[H\033[J" if sys.stdout.isatty() else "", end="")
        say(found)
        rows: list[tuple[Any, ...]] = []
        lines: list[str] = []
        now = time.time()
        for seen in found:
            told = _told(place, seen)
            asked = _asked(place, seen, told, now - WINDOW_S)
            rows += _rows(seen, told, asked, now)
            lines += _outlook(place, seen, told, asked, now)
        if rows:
            print()
            terminal.table(("shard", "stage", "records so far", "pictures/s now", "average", "left"), rows)
        print("\n".join(lines), flush=True)
        time.sleep(every_s)


def _told(place: Workplace, seen: Seen) -> dict[str, list[Told]]:
    """Of every shard at work: what its run has told, the latest first."""
    found: dict[str, list[Told]] = {}
    for shard, (kind, run_id) in seen.state.at_work.items():
        if kind == "running":
            told = [t for asset in ("captions", "recaptions") for t in _observations(place, seen, asset, shard, run_id)]
            found[shard] = sorted(told, key=lambda t: t.at, reverse=True)
    return found


def _observations(place: Workplace, seen: Seen, asset: str, shard: str, run_id: str) -> Iterator[Told]:
    chosen = dg.AssetRecordsFilter(asset_key=seen.ds.key(asset), asset_partitions=[shard])
    for record in place.instance.fetch_observations(chosen, limit=EVENTS).records:
        event = record.asset_observation
        if record.run_id == run_id and event is not None:
            yield Told(record.timestamp, asset, {key: value.value for key, value in event.metadata.items()})


def _rows(seen: Seen, told: dict[str, list[Told]], asked: dict[str, Span], now: float) -> Iterator[tuple[Any, ...]]:
    for shard, events in told.items():
        name = f"{seen.ds.name}/{shard}"
        if shard in asked or not events:
            done = f"{asked[shard][2]:,.0f}" if shard in asked else None
            yield (name, "merging" if shard in asked else "not asking yet", done, *[None] * 3)
            continue
        last, left = events[0], None
        if "eta_s" in last.figures:
            left = terminal.duration(max(0.0, last.figures["eta_s"] - (now - last.at)))
        rates = [f"{last.figures[key]:,.1f}" for key in ("images_per_s_now", "images_per_s")]
        yield (name, last.stage, f"{last.done:,.0f}", *rates, left)


def _asked(place: Workplace, seen: Seen, told: dict[str, list[Told]], since: float) -> dict[str, Span]:
    """Shards that were asked all that captions asks and have told nothing since, and when they were."""
    chosen, found = dg.AssetRecordsFilter(asset_key=seen.ds.key("captions"), after_timestamp=since), dict[str, Span]()
    for record in place.instance.fetch_materializations(chosen, limit=EVENTS).records:
        event = record.asset_materialization
        figures: dict[str, Any] = {key: value.value for key, value in event.metadata.items()} if event else {}
        shard = record.partition_key
        if not shard or shard in found or (told.get(shard) and record.timestamp < told[shard][0].at):
            continue
        if figures.get("records_asked") and figures.get("engine_seconds"):
            # Some time passes from the last answer to the materialization, so what it told at first knows better when it began.
            begins = [_begin(early) for early in _observations(place, seen, "captions", shard, record.run_id)]
            begin = min(begins, default=record.timestamp - figures["engine_seconds"])
            found[shard] = (begin, begin + figures["engine_seconds"], figures["records_asked"])
    return found


def _outlook(place: Workplace, seen: Seen, told: dict[str, list[Told]], asked: dict[str, Span], now: float) -> Iterator[str]:
    """When all shards that are not done would be, at the pace of all that is at work together."""
    asking = {shard: events for shard, events in told.items() if events and shard not in asked}
    if not asking:
        return
    until = min(events[0].at for events in asking.values())
    rate = rate_until(until, WINDOW_S, [*_spans(asking), *asked.values()])
    if not rate:
        return
    waiting = [s.shard for s in seen.shards if s.status != "done" and s.shard not in asking and s.shard not in asked]
    more = sum(events[0].more_by(now) for events in asking.values()) + _wanted(place, seen, waiting, asking)
    left = terminal.duration(more / rate + _tail(place, seen))
    shards = sum(s.status != "done" for s in seen.shards)
    yield f"{seen.ds.name}: {rate:,.1f} pictures/s; about {left} left for all of the {shards} shards that are not done"


def _tail(place: Workplace, seen: Seen) -> float:
    """Seconds that shards took of late from their last answer to their end."""
    ends = []
    for asset in ("captions", "failed"):  # failed and merged come together; its events carry no pictures
        records = place.instance.fetch_materializations(seen.ds.key(asset), limit=EVENTS).records
        ends.append({(record.run_id, record.partition_key): record.timestamp for record in records})
    took = [ends[1][run] - asked for run, asked in ends[0].items() if run in ends[1]]
    return sum(took) / len(took) if took else 0.0


def _spans(asking: dict[str, list[Told]]) -> Iterator[Span]:
    """What shards at work got from one observation to the next; before the first one at their average."""
    for events in asking.values():
        for later, before in itertools.pairwise(events):
            if later.stage == before.stage:
                yield before.at, later.at, later.done - before.done
        first = events[-1]
        yield _begin(first), first.at, first.done


def _begin(told: Told) -> float:
    """When it got its first answer."""
    return told.at - told.done / told.figures["images_per_s"]


def _wanted(place: Workplace, seen: Seen, shards: list[str], asking: dict[str, list[Told]]) -> float:
    """Answers that these shards will want: as many as they have records, times outputs."""
    from caption_assets.core.plan.estimating import records_expected
    from caption_assets.core.plan.plans import load_plan

    plan, outputs = load_plan(place.objects, seen.ds.layout), len(seen.ds.spec.prompts)
    known = {s.shard: float(s.records) for s in seen.shards if s.records and s.shard in plan}
    for shard, events in asking.items():
        if shard not in known and events[0].stage == "captions":
            known[shard] = float(events[0].figures.get("records_to_ask", events[0].done)) / outputs
    counts = records_expected(plan, [shard for shard in shards if shard in plan], known).values()
    return sum(count or 0.0 for count in counts) * outputs
