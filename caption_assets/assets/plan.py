"""shard_plan: which records make which shard, decided once."""

import dagster as dg

from caption_assets.partitions import Dataset
from caption_assets.resources.store import StoreResource


def shard_plan(ds: Dataset) -> dg.AssetsDefinition:
    @ds.asset(kinds={"parquet"}, name="shard_plan")
    def shard_plan(context: dg.AssetExecutionContext, store: StoreResource) -> dg.MaterializeResult:
        """One row per shard and source object. Lists the source and plans what is new as a further write-once generation;
        then makes the new shards' partitions."""
        from caption_assets.core.planning import make_plan

        result = make_plan(store.objects, ds.layout, ds.spec, hold_back_short_groups=False)
        register_shards(context.instance, ds, result.plan)
        for problem in result.problems:
            context.log.warning(problem)
        return dg.MaterializeResult(metadata=result.summary())

    return shard_plan


def register_shards(instance: dg.DagsterInstance, ds: Dataset, plan: object) -> None:
    """Makes Dagster's partitions equal the plan's active shards, idempotently: new keys in one batch, retired ones away."""
    from caption_assets.core.plans import Plan

    assert isinstance(plan, Plan)
    known = set(instance.get_dynamic_partitions(ds.partitions_name))
    missing = [key for key in plan.shards if key not in known]
    if missing:
        instance.add_dynamic_partitions(ds.partitions_name, missing)
    for key in known.intersection(plan.retired):
        instance.delete_dynamic_partition(ds.partitions_name, key)
