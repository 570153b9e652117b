"""Jobs: what people launch, one run per shard."""

from __future__ import annotations

from typing import Any

import dagster as dg

from caption_assets.partitions import CONFIG_TAG, SHARD_ASSETS, Dataset

PREPARE_ASSETS = ("manifest", "concat_grids")


def dataset_jobs(ds: Dataset) -> list[Any]:
    """The dataset's jobs."""
    return [
        _job(ds, "plan", ("shard_plan",), "Lists the source, plans what is new and makes its partitions."),
        _job(ds, "prepare_shard", PREPARE_ASSETS, "Manifest and grids of a shard; needs no GPU."),
        _job(ds, "caption_shard", SHARD_ASSETS, "A shard from its manifest to merged and failed; what is up to date is kept."),
        _job(ds, "caption_index", ("caption_index",), "Brings captions.duckdb up to date."),
    ]


def _job(ds: Dataset, name: str, assets: tuple[str, ...], description: str) -> Any:
    """Steps share one process: chunks make a restart cheap, steps of their own would cost seconds each."""
    tags: dict[str, Any] = {"dataset": ds.name, **ds.resource_tags(*assets)}
    if "captions" in assets:
        tags[CONFIG_TAG] = ds.config_digest
    return dg.define_asset_job(
        f"{ds.name}_{name}",
        selection=dg.AssetSelection.assets(*[ds.key(asset) for asset in assets]),
        executor_def=dg.in_process_executor,
        description=description,
        tags=tags,
    )
