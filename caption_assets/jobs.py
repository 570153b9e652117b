"""Jobs: what people launch, one run per shard."""

import random
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from caption_assets.checks import GRID_CHECK, STANDING_CHECKS, look_at_grids
from caption_assets.core.report.text import plural
from caption_assets.partitions import CONFIG_TAG, PREPARE_ASSETS, SHARD_ASSETS, Dataset

GRIDS_CHECKED = 20
"""Shards whose grids one run of their check looks at, where none are named."""


def dataset_jobs(ds: Dataset) -> list[Any]:
    """The dataset's jobs."""
    return [
        _job(ds, "plan", ("shard_plan",), "Lists the source, plans what is new and makes its partitions."),
        _job(ds, "prepare_shard", PREPARE_ASSETS, "Manifest and grids of a shard; needs no GPU."),
        _job(ds, "caption_shard", SHARD_ASSETS, "A shard from its manifest to merged and failed; what is up to date is kept."),
        _job(ds, "caption_index", ("caption_index",), "Brings captions.duckdb up to date."),
        _job(ds, "report", ("report",), "Writes the report's pages for what changed since the last one."),
        *(_job(ds, f"export_{f}", (f"export_{f}",), f"Exports a merged shard as {f}.") for f in ds.spec.exports),
        checks_job(ds),
        check_grids_job(ds),
        recaption_out_of_date(ds),
    ]


def _job(ds: Dataset, name: str, assets: tuple[str, ...], description: str) -> Any:
    """Steps share one process: chunks make a restart cheap, steps of their own would cost seconds each. A shard's run leaves the
    standing checks out: they look at all shards."""
    tags: dict[str, Any] = {"dataset": ds.name, **ds.resource_tags(*assets)}
    if "captions" in assets:
        tags[CONFIG_TAG] = ds.config_digest
    return dg.define_asset_job(
        f"{ds.name}_{name}",
        selection=dg.AssetSelection.assets(*[ds.key(asset) for asset in assets]) - _standing(ds),
        executor_def=dg.in_process_executor,
        description=description,
        tags=tags,
    )


def _standing(ds: Dataset) -> dg.AssetSelection:
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(ds.key("merged"), name) for name in STANDING_CHECKS))


def checks_job(ds: Dataset) -> Any:
    """The standing checks over all shards, without materializing anything."""
    return dg.define_asset_job(
        f"{ds.name}_checks",
        selection=_standing(ds),
        executor_def=dg.in_process_executor,
        description="Looks for shards whose last run failed and for shards that are out of date.",
        tags={"dataset": ds.name},
    )


def check_grids_job(ds: Dataset) -> dg.JobDefinition:
    """Launched without config from the UI: grid_integrity of some shards, others each time, or of those that `shards` names.
    (Dagster cannot give partitions to a job of checks alone.)"""

    @dg.op(
        name=f"{ds.name}__check_grids",
        required_resource_keys={"store"},
        config_schema={"shards": dg.Field([str], default_value=[], description=f"none: {GRIDS_CHECKED} by chance")},
    )
    def check(context: dg.OpExecutionContext) -> Iterator[Any]:
        key, store = ds.key("concat_grids"), context.resources.store
        made = sorted(context.instance.get_materialized_partitions(key))
        chosen = context.op_config["shards"] or random.sample(made, min(GRIDS_CHECKED, len(made)))
        damaged = []
        for shard in chosen:
            passed, said, metadata = look_at_grids(ds, store, shard, context.run_id)
            yield dg.AssetCheckEvaluation(key, GRID_CHECK, passed, metadata=metadata, description=said, partition=shard)
            damaged += [] if passed else [shard]
        if damaged:
            raise dg.Failure(f"{ds.name}: {GRID_CHECK} failed for {', '.join(damaged)}", allow_retries=False)
        context.log.info(f"looked at the grids of {plural(len(chosen), 'shard')}: all whole")
        yield dg.Output(None)

    @dg.job(
        name=f"{ds.name}_check_grids",
        executor_def=dg.in_process_executor,
        tags={"dataset": ds.name},
        description="Opens the grids of some shards again and compares them with their mappings; makes nothing, asks nothing.",
    )
    def job() -> None:
        check()

    return job


def recaption_out_of_date(ds: Dataset) -> dg.JobDefinition:
    """Launched without config from the UI: a backfill of just the shards that another recipe or other filters made."""

    @dg.op(name=f"{ds.name}__recaption_out_of_date", required_resource_keys={"store"})
    def request(context: dg.OpExecutionContext) -> None:
        from dagster._core.execution.backfill import PartitionBackfill
        from dagster._core.utils import make_new_backfill_id

        from caption_assets.shards import dataset_state

        state = dataset_state(context.instance, ds, context.resources.store.objects)
        shards = [shard for shard in state.versions("merged") if state.state(shard).status == "out_of_date"]
        if not shards:
            context.log.info("every captioned shard is up to date")
            return
        backfill = PartitionBackfill.from_asset_partitions(
            backfill_id=make_new_backfill_id(),
            asset_graph=context.repository_def.asset_graph,
            asset_selection=[ds.key(asset) for asset in SHARD_ASSETS],
            partition_names=shards,
            dynamic_partitions_store=context.instance,
            tags={"dataset": ds.name, CONFIG_TAG: ds.config_digest},
            backfill_timestamp=time.time(),
            all_partitions=False,
            title=f"{ds.name}: {plural(len(shards), 'shard')} out of date",
            description=None,
            run_config=None,
        )
        context.instance.add_backfill(backfill)
        context.log.info(f"asked for backfill {backfill.backfill_id} of {plural(len(shards), 'shard')}")

    @dg.job(
        name=f"{ds.name}_recaption_out_of_date",
        executor_def=dg.in_process_executor,
        tags={"dataset": ds.name},
        description="Asks for runs of the shards that were captioned with another recipe or merged with other filters.",
    )
    def job() -> None:
        request()

    return job
