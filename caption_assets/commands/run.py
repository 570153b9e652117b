"""`caption-assets run` and `retry`: one Dagster run per shard, in this process, until everything is done."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from caption_assets.commands import terminal
from caption_assets.commands.telling import Telling
from caption_assets.commands.workers import Ended, Task, Workers
from caption_assets.commands.workplace import BUSY, DONE, FAILED, UsageError, Workplace, choose_shards
from caption_assets.core.report.text import plural
from caption_assets.display import plain
from caption_assets.sqlitelocks import shared_warning

if TYPE_CHECKING:
    from caption_assets.core.captioning import Pending
    from caption_assets.core.plan.plans import Plan
    from caption_assets.partitions import Dataset

Todo = list[tuple[str, tuple[str, ...], "int | None"]]
"""Shards with what each needs, and the storage id of its latest merge (0: none yet)."""
SAMPLED = 20
"""Prepared shards from which is learnt how many records others have."""
COUNTING_S = 30.0
"""So long are the requests of prepared shards counted before the first shard is begun."""
Counts = dict[str, "Pending | None"]
"""What each shard would ask now; None while it is not prepared, or was not counted."""


@dataclass
class Outcome:
    """What came of a loop over shards: those that failed, and those that another run holds."""

    failed: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return FAILED if self.failed else BUSY if self.busy else DONE


def run(place: Workplace, names: Sequence[str], shards: str | None, dry_run: bool) -> int:
    """Plans what is new, then materializes per shard what is missing or out of date."""
    from caption_assets.commands.reconcile import reconcile_dataset
    from caption_assets.liveness import clear_dead_runs

    for run_id in clear_dead_runs(place.instance, place.datasets, place.objects):
        print(f"run {run_id[:8]} was dead: marked failed, its slots are free")
    if warning := shared_warning(place.instance):
        print(warning, file=sys.stderr)
    outcome = Outcome()
    with Workers() as workers:
        for ds in place.chosen(names):
            plan = ensure_plan(place, workers, ds)
            if plan is None:
                outcome.failed.append(f"{ds.name}/shard_plan")
                continue
            reconcile_dataset(place, ds, plan)
            todo = _todo(place, ds, choose_shards(plan, shards))
            if dry_run:
                _say_dry_run(place, ds, todo)
            else:
                _run_shards(place, workers, ds, plan, todo, outcome)
    return outcome.exit_code


def ensure_plan(place: Workplace, workers: Workers, ds: Dataset) -> Plan | None:
    """The plan, with what is new in the source (no run where nothing is); its partitions are made. Says which planned files
    changed or are gone, and why there is none where that failed."""
    from caption_assets.assets.plan import plan_problems, register_shards
    from caption_assets.core.objectstore import ObjectError
    from caption_assets.core.plan.plans import PlanError, load_plan
    from caption_assets.core.planning import new_objects

    try:
        found = new_objects(place.objects, ds.layout, ds.spec)
        plan, problems = found.plan, found.problems
        if found.new_files:
            if not _run_one(place, workers, Task(ds.name, "plan", ["shard_plan"])):
                return None
            plan, problems = load_plan(place.objects, ds.layout), plan_problems(place.instance, ds)
        terminal.problems(ds, problems)
        register_shards(place.instance, ds, plan)
        return plan
    except (PlanError, ObjectError) as error:
        print(f"{ds.name}: {error}")
        return None


def _run_one(place: Workplace, workers: Workers, task: Task) -> bool:
    """One run by itself; says what went wrong."""
    successes = []

    def ended(task: Task, end: Ended) -> None:
        successes.append(end.success)
        if not end.success:
            _failure(place, task, end)

    workers.run([task], ended)
    return all(successes)


def _failure(place: Workplace, task: Task, end: Ended) -> bool:
    """Says what went wrong; True when other shards would fail alike. A worker that was killed leaves its run at work, with a pool
    slot that the others would wait for."""
    from caption_assets.liveness import clear_dead_runs

    if end.run_id is None:
        clear_dead_runs(place.instance, place.datasets, place.objects)
    return terminal.failure(place.instance, end.run_id, task.title)


def _todo(place: Workplace, ds: Dataset, chosen: list[str]) -> Todo:
    from caption_assets.shards import dataset_state

    state = dataset_state(place.instance, ds, place.objects, chosen)
    merges = state.event_ids("merged")
    return [(shard, needs, merges.get(shard, 0)) for shard in chosen if (needs := state.needs(shard))]


def _run_shards(
    place: Workplace, workers: Workers, ds: Dataset, plan: Plan, todo: Todo, outcome: Outcome, tags: dict[str, str] | None = None
) -> None:
    if not todo:
        print(f"{ds.name}: nothing to do")
        return _index(place, workers, ds, outcome)
    counts = _counted(place, ds, todo)
    print(f"{ds.name}: {plural(len(todo), 'shard')} to do, {_requests(todo, counts)}", flush=True)
    numbers = itertools.count(1)

    held: list[tuple[Task, str]] = []

    def ended(task: Task, end: Ended) -> None:
        if end.held_by:
            held.append((task, end.held_by))
            return
        number, left = next(numbers), telling.ended(task, end.success)
        if end.success:
            terminal.shard_line(place.instance, ds, str(task.shard), number, len(todo), left, end.done_by)
            return
        outcome.failed.append(task.title)
        if _failure(place, task, end) and (left_out := workers.drop_waiting()):
            print(f"{ds.name}: {left_out} more shards would fail alike and were not begun", flush=True)

    tasks = [Task(ds.name, "caption_shard", needs, shard, tags or {}, known) for shard, needs, known in todo]
    with Telling(ds.name, _answers(place, ds, plan, todo, counts)) as telling:
        workers.run(tasks, ended, telling.progress)
        # Somebody else was at work on these: by now they may be done, or their holder dead.
        again, held = [task for task, _ in held], []
        workers.run(again, ended, telling.progress)
    for task, who in held:
        outcome.busy.append(task.title)
        print(f"{task.title}: left to {plain(who)}, at work on it", flush=True)
    return _index(place, workers, ds, outcome)


def _index(place: Workplace, workers: Workers, ds: Dataset, outcome: Outcome) -> None:
    """Brings captions.duckdb up to date, when a shard was merged since it was built."""
    index = place.instance.get_latest_materialization_event(ds.key("caption_index"))
    built = index.timestamp if index else 0.0
    merged = place.instance.get_latest_materialization_event(ds.key("merged"))
    if merged is None or (merged.timestamp <= built and place.objects.exists(ds.layout.index)):
        return
    if not _run_one(place, workers, Task(ds.name, "caption_index", ["caption_index"])):
        outcome.failed.append(f"{ds.name}/caption_index")


def _answers(place: Workplace, ds: Dataset, plan: Plan, todo: Todo, counts: Counts) -> dict[str, float | None]:
    """How many answers each shard wants: counted where it is prepared, else estimated from what the plan says of it."""
    from caption_assets.core import tables
    from caption_assets.core.plan.estimating import records_expected

    found: dict[str, float | None] = {}
    for shard, needs, _ in todo:
        count = counts[shard]
        found[shard] = count.records if count else None if "recaptions" in needs else 0
    unknown = [shard for shard, needs, _ in todo if "captions" in needs and counts[shard] is None]
    prepared = [shard for shard, count in counts.items() if count][:SAMPLED] if unknown else []
    known = {shard: float(tables.table(place.objects, ds.layout.manifest(shard)).rows) for shard in prepared}
    for shard, records in records_expected(plan, unknown, known).items():
        found[shard] = None if records is None else records * len(ds.spec.prompts)
    return found


def _counted(place: Workplace, ds: Dataset, todo: Todo) -> Counts:
    """A hundred thousand prepared shards are not all looked at before the first is begun."""
    until = time.monotonic() + COUNTING_S
    return {
        shard: pending(place, ds, shard) if "captions" in needs and time.monotonic() < until else None for shard, needs, _ in todo
    }


def _requests(todo: Todo, counts: Counts) -> str:
    """How many requests the work means, in words, as far as it was counted."""
    wanted = [counts[shard] for shard, needs, _ in todo if "captions" in needs]
    known = [count for count in wanted if count is not None]
    said, unknown = plural(sum(count.requests for count in known), "request"), len(wanted) - len(known)
    if unknown and not known:
        return "requests not counted yet: nothing is prepared"
    return said + (f" and those of {plural(unknown, 'shard')} not prepared or not counted yet" if unknown else "")


def pending(place: Workplace, ds: Dataset, shard: str) -> Pending | None:
    """What the shard would ask now, without asking; None while it is not prepared."""
    from caption_assets.commands.reconcile import current_recipes
    from caption_assets.core import tables
    from caption_assets.core.captioning import count_pending
    from caption_assets.core.objectstore import ObjectMissing

    try:
        manifest = tables.table(place.objects, ds.layout.manifest(shard))
        mapping = tables.table(place.objects, ds.layout.mapping(shard))
    except (ObjectMissing, tables.DamagedTable):  # made again before anything is asked
        return None
    return count_pending(place.objects, ds.layout, ds.spec, shard, current_recipes(place, ds), manifest, mapping)


def _say_dry_run(place: Workplace, ds: Dataset, todo: Todo) -> None:
    """Per shard what it would ask; pictures are not read, the model is not started."""
    from caption_assets.core.captioning import Pending

    if not todo:
        print(f"{ds.name}: nothing to do")
        return
    print(f"{ds.name}: {plural(len(todo), 'shard')} to do")
    rows, total, unknown = [], Pending(), 0
    for shard, needs, _ in todo:
        count = pending(place, ds, shard) if "captions" in needs else Pending()
        total, unknown = total + (count or Pending()), unknown + (count is None)
        rows.append((shard, needs[0], *(_figures(count) if count else ["?"] * 4)))
    if unknown < len(todo):
        rows.append(("counted" if unknown else "all", "", *_figures(total)))
    terminal.table(("shard", "from", "requests", "pictures", "prompt tokens", "picture MB"), rows)
    if unknown < len(todo):
        print(f"at most {total.max_completion_tokens:,} tokens of replies" + _hours(place, ds, total))
    if unknown:
        print(f"?: counted once the job {ds.name}_prepare_shard (no GPU) has prepared the shard; docs/team.md has its command")


def _figures(count: Pending) -> tuple[str, ...]:
    return (f"{count.requests:,}", f"{count.records:,}", f"{count.prompt_tokens:,}", f"{count.picture_bytes / 1e6:,.1f}")


def _hours(place: Workplace, ds: Dataset, count: Pending) -> str:
    """From the rate of the last captions, where there was one."""
    event = place.instance.get_latest_materialization_event(ds.key("captions"))
    made = event.asset_materialization if event else None
    rate = made.metadata["images_per_s"].value if made and "images_per_s" in made.metadata else None
    if not isinstance(rate, (int, float)) or not rate:
        return "; hours: unknown until a shard was captioned"
    return f"; about {terminal.duration(count.records / rate)} at the last shard's {rate:,.1f} pictures/s"


def retry(place: Workplace, name: str, reasons: Sequence[str], shards: str | None) -> int:
    """One more round for records that failed for these reasons (all retryable ones for none), shard by shard."""
    from caption_assets.assets.shard_run import REASON_TAG
    from caption_assets.core.columns import REASONS
    from caption_assets.core.plan.plans import load_plan
    from caption_assets.liveness import clear_dead_runs

    unknown = [reason for reason in reasons if reason not in REASONS]
    if unknown:
        raise UsageError(f"--reason {unknown[0]}: no such reason; there are {', '.join(REASONS)}")
    clear_dead_runs(place.instance, place.datasets, place.objects)
    (ds,) = place.chosen([name])
    outcome, plan = Outcome(), load_plan(place.objects, ds.layout)
    chosen = shards_with(place, ds, set(reasons), choose_shards(plan, shards))
    if not chosen:
        print(f"{ds.name}: no record failed for {' or '.join(reasons) or 'a retryable reason'}")
        return DONE
    tags = {REASON_TAG: ",".join(reasons)} if reasons else {}
    needs = ("concat_grids", "recaptions", "merged", "failed")  # there, grids that were cleaned are made and pictures read again
    with Workers() as workers:
        _run_shards(place, workers, ds, plan, [(shard, needs, None) for shard in chosen], outcome, tags)
    return outcome.exit_code


def shards_with(place: Workplace, ds: Dataset, reasons: set[str], shards: list[str]) -> list[str]:
    """Those of the shards that are merged, and in which a record failed for one of the reasons (any retryable one for none)."""
    from caption_assets.core.columns import RETRYABLE_REASONS
    from caption_assets.core.merging import read_pair

    wanted, found = reasons or RETRYABLE_REASONS, []
    for shard in shards:
        pair = read_pair(place.objects, ds.layout, shard)
        if pair and wanted.intersection(pair.merged.summary.get("reasons", {})):
            found.append(shard)
    return found
