"""shard_plan: which records make which shard, decided once."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from caption_assets.core.columns import PLAN
from caption_assets.core.report.text import plural
from caption_assets.partitions import Dataset, column_schema
from caption_assets.resources.store import StoreResource
from caption_assets.sensors import IF_DUE_TAG, is_due

if TYPE_CHECKING:
    from caption_assets.core.plan.plans import Plan
    from caption_assets.core.planning import PlanResult

CHECK = "plan_unchanged"


def shard_plan(ds: Dataset) -> dg.AssetsDefinition:
    @ds.asset(
        name="shard_plan",
        kinds={"parquet"},
        metadata=column_schema(PLAN),
        check_specs=[
            dg.AssetCheckSpec(
                CHECK,
                asset=ds.key("shard_plan"),
                description="Every planned source file is there and is what it was when it was planned.",
            )
        ],
    )
    def shard_plan(context: dg.AssetExecutionContext, store: StoreResource) -> Iterator[Any]:
        """One row per shard and source object. Lists the source and plans what is new as a further write-once generation;
        then makes the new shards' partitions."""
        result = _plan(context, ds, store)
        register_shards(context.instance, ds, result.plan)
        rows = sum(shard.rows for generation in result.plan.generations for shard in generation.shards)
        yield dg.MaterializeResult(metadata={**result.summary(), "dagster/row_count": rows})
        yield dg.AssetCheckResult(
            check_name=CHECK,
            passed=not result.problems,
            severity=dg.AssetCheckSeverity.ERROR,
            description=f"{plural(result.changed_count, 'planned file')} changed, {result.vanished_count:,} gone",
            metadata={
                "changed_files": result.changed_count,
                "vanished_files": result.vanished_count,
                **({"problems": dg.MetadataValue.text("\n".join(result.problems))} if result.problems else {}),
            },
        )

    return shard_plan


def _plan(context: dg.AssetExecutionContext, ds: Dataset, store: StoreResource) -> "PlanResult":
    """Plans all that is new; for a run of the sensor only what is settled and worth a shard; short groups of tars wait."""
    from caption_assets.core.plan.noticing import notice_new
    from caption_assets.core.plan.plans import load_plan
    from caption_assets.core.planning import PlanResult, make_plan

    waited = context.run.tags.get(IF_DUE_TAG)
    if waited is None:
        return make_plan(store.objects, ds.layout, ds.spec)
    settings, seconds = ds.spec.sensor, float(waited)
    notice = notice_new(store.objects, ds.layout, ds.spec, settle_s=settings.settle_s)
    if not is_due(ds, notice.new, seconds):
        return PlanResult(load_plan(store.objects, ds.layout), dataset=ds.name, unsettled=notice.unsettled)
    hold_back = seconds < settings.max_wait_s
    return make_plan(store.objects, ds.layout, ds.spec, hold_back_short_groups=hold_back, settle_s=settings.settle_s)


def plan_problems(instance: dg.DagsterInstance, ds: Dataset) -> list[str]:
    """What the last run of the plan found changed or gone, in words. Runs that others are at just now are left out."""
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

    key, ended = dg.AssetCheckKey(ds.key("shard_plan"), CHECK), {Status.SUCCEEDED, Status.FAILED}
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=ended)
    event = records[0].event.dagster_event if records and records[0].event else None
    problems = event.asset_check_evaluation_data.metadata.get("problems") if event else None
    return str(problems.value).splitlines() if problems else []


def register_shards(instance: dg.DagsterInstance, ds: Dataset, plan: "Plan") -> None:
    """Makes Dagster's partitions equal the plan's active shards, idempotently: new keys in batches, retired ones away."""
    from caption_assets.shards import KEYS_AT_ONCE

    known = set(instance.get_dynamic_partitions(ds.partitions_name))
    missing = [key for key in plan.shards if key not in known]
    for start in range(0, len(missing), KEYS_AT_ONCE):
        instance.add_dynamic_partitions(ds.partitions_name, missing[start : start + KEYS_AT_ONCE])
    for key in known.intersection(plan.retired):
        instance.delete_dynamic_partition(ds.partitions_name, key)
