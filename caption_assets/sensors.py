"""Sensors: one that clears dead runs, and per dataset one that notices new data and one that prepares new shards (both off by
default)."""

import json
import time
from collections.abc import Iterator

import dagster as dg

from caption_assets.automation import automation_sensors
from caption_assets.partitions import Dataset
from caption_assets.resources.store import StoreResource

TICK_S = 12.0
"""A tick lists for so long; a source that takes longer is listed by a plan run instead. Dagster ends ticks at 60 s."""
LISTING_RUN_EVERY_S = 3600.0
IF_DUE_TAG = "caption_assets/plan_if_due"
"""On plan runs of the sensor: plan only what `sensor` of the config says is worth a shard. Value: seconds waited already."""


def build_sensors(datasets: list[Dataset]) -> list[dg.SensorDefinition]:
    """All sensors of the code location; none without datasets."""
    if not datasets:
        return []
    return [dead_runs(datasets), *(new_data(ds) for ds in datasets), *automation_sensors(datasets)]


def dead_runs(datasets: list[Dataset]) -> dg.SensorDefinition:
    @dg.sensor(
        name="dead_runs",
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Marks runs failed whose process is gone or whose lease has run out, and frees their pool slots.",
    )
    def sensor(context: dg.SensorEvaluationContext, store: StoreResource) -> dg.SkipReason:
        from caption_assets.liveness import clear_dead_runs

        cleared = clear_dead_runs(context.instance, datasets, store.objects)
        return dg.SkipReason(f"marked failed: {', '.join(cleared)}" if cleared else "no dead runs")

    return sensor


def new_data(ds: Dataset) -> dg.SensorDefinition:
    settings = ds.spec.sensor

    @dg.sensor(
        name=f"{ds.name}_new_data",
        job_name=f"{ds.name}_plan",
        minimum_interval_seconds=settings.interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.enabled else dg.DefaultSensorStatus.STOPPED,
        description="Asks for a plan run when the source holds enough new files; registers shards that a dead plan run left.",
    )
    def sensor(context: dg.SensorEvaluationContext, store: StoreResource) -> dg.SensorResult:
        from caption_assets.core.plan.noticing import notice_new

        remembered = json.loads(context.cursor or "{}")
        now = time.time()
        notice = notice_new(store.objects, ds.layout, ds.spec, settle_s=settings.settle_s, within_s=TICK_S)
        since = remembered.get("since", now) if notice.new else None
        waited = now - since if since is not None else 0.0
        request, asked = None, remembered.get("asked", 0.0)
        if not notice.complete:
            reason = f"{notice.new} new files so far; the source is too large for a tick"
            if now - asked >= LISTING_RUN_EVERY_S:
                request = _plan_run(ds, now, waited)
        else:
            reason = f"{notice.new} new files, {notice.unsettled} still settling"
            if is_due(ds, notice.new, waited):
                request = _plan_run(ds, now, waited)
        cursor = {"since": None if request else since, "asked": now if request else asked}
        return dg.SensorResult(
            run_requests=[request] if request else [],
            skip_reason=None if request else reason,
            cursor=json.dumps({key: value for key, value in cursor.items() if value is not None}),
            dynamic_partitions_requests=list(_unregistered(context.instance, ds, store)),
        )

    return sensor


def is_due(ds: Dataset, new_files: int, waited_s: float) -> bool:
    """Whether so many new files are worth planning now."""
    settings = ds.spec.sensor
    return new_files > 0 and (new_files >= max(settings.min_new_files, ds.spec.group_tars) or waited_s >= settings.max_wait_s)


def _plan_run(ds: Dataset, now: float, waited: float) -> dg.RunRequest:
    return dg.RunRequest(run_key=f"{ds.name}-{now:.0f}", tags={IF_DUE_TAG: f"{waited:.0f}"})


def _unregistered(instance: dg.DagsterInstance, ds: Dataset, store: StoreResource) -> Iterator[dg.AddDynamicPartitionsRequest]:
    """Planned shards that Dagster does not know yet: a plan run that died between the object and the keys left them."""
    from caption_assets.core.plan.plans import load_plan
    from caption_assets.shards import KEYS_AT_ONCE

    known = set(instance.get_dynamic_partitions(ds.partitions_name))
    missing = [shard for shard in load_plan(store.objects, ds.layout).shards if shard not in known]
    if missing:
        yield ds.shards.build_add_request(missing[:KEYS_AT_ONCE])
