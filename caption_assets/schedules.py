"""Schedules, all off until somebody turns them on: nothing on the GPU starts unasked."""

from collections.abc import Iterator

import dagster as dg

from caption_assets.partitions import Dataset
from caption_assets.resources.store import StoreResource

NIGHTLY_SHARDS = 50
"""Shards that one night asks for: bounded, so that a mistake costs one night."""


def build_schedules(datasets: list[Dataset]) -> list[dg.ScheduleDefinition]:
    return [schedule for ds in datasets for schedule in (nightly(ds), nightly_checks(ds))]


def nightly(ds: Dataset) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"{ds.name}_nightly",
        cron_schedule="0 1 * * *",
        job_name=f"{ds.name}_caption_shard",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Asks for the oldest {NIGHTLY_SHARDS} shards that are missing, out of date or failed.",
    )
    def schedule(context: dg.ScheduleEvaluationContext, store: StoreResource) -> Iterator[dg.RunRequest]:
        from caption_assets.shards import dataset_state

        state = dataset_state(context.instance, ds, store.objects)
        open_shards = (shard for shard in state.shards if state.state(shard).status in ("missing", "out_of_date", "failed"))
        for _, shard in zip(range(NIGHTLY_SHARDS), open_shards, strict=False):
            yield dg.RunRequest(run_key=f"{context.scheduled_execution_time:%Y-%m-%d}-{shard}", partition_key=shard)

    return schedule


def nightly_checks(ds: Dataset) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"{ds.name}_nightly_checks",
        cron_schedule="0 6 * * *",
        job_name=f"{ds.name}_checks",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Looks for shards whose last run failed and for shards that are out of date.",
    )
