"""concat_grids: numbered pictures of several records in one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from caption_assets.assets.shard_run import ShardRun, grids_complete, reusable
from caption_assets.automation import prepare_condition
from caption_assets.checks import grid_check, grid_result
from caption_assets.core.columns import MAPPING
from caption_assets.partitions import OWNERS, Dataset, column_schema
from caption_assets.resources.store import StoreResource

if TYPE_CHECKING:
    from caption_assets.core.tables import RecordStream, TableHandle


def concat_grids(ds: Dataset) -> dg.AssetsDefinition:
    """One asset in a multi-asset, since only these can run a check of theirs alone, without a step of its own in every run."""

    @dg.multi_asset(
        name=f"{ds.name}__concat_grids",
        partitions_def=ds.shards,
        can_subset=True,
        ins={"manifest": dg.AssetIn(ds.key("manifest"))},
        outs={
            "concat_grids": dg.AssetOut(
                key=ds.key("concat_grids"),
                is_required=False,
                io_manager_key="parquet",
                group_name=ds.name,
                kinds={"webdataset", "parquet"},
                owners=OWNERS,
                description="WebDataset tars of grids, and one mapping row per readable record: its grid and cell, hash, size "
                "and format. Where they are made already, only what a passing fault kept from being read is read again.",
                metadata=column_schema(MAPPING),
                automation_condition=prepare_condition(ds),
            )
        },
        check_specs=[grid_check(ds)],
        op_tags=ds.resource_tags("concat_grids"),
    )
    def concat_grids(context: dg.AssetExecutionContext, manifest: Any, store: StoreResource) -> Iterator[Any]:
        """Makes the grids where they are not there yet, and looks whether they are what the mapping says."""
        shard = ShardRun(context, ds, store)
        if shard.left_to_another():
            return
        if "concat_grids" in context.selected_output_names:
            yield from _made(shard, manifest)
        if context.selected_asset_check_keys:
            yield grid_result(ds, context, store)

    return concat_grids


def _made(shard: ShardRun, manifest: "TableHandle") -> Iterator[Any]:
    from caption_assets.core.pictures.gridding import build_grids
    from caption_assets.core.pictures.gridtars import remove_stale
    from caption_assets.core.pictures.rereading import read_again, unread
    from caption_assets.core.recipes import mapping_version
    from caption_assets.core.sources import check_unchanged

    ds, objects = shard.ds, shard.objects
    version = mapping_version(ds.spec, manifest.metadata["version"])
    uri = ds.layout.mapping(shard.key)
    with shard.lease():
        kept = reusable(objects, uri, version)
        if kept and not grids_complete(objects, ds.layout, shard.key, kept):
            kept = None
        made: RecordStream | TableHandle
        if kept is None:
            check_unchanged(objects, ds.spec, shard.planned()[0])
            made = build_grids(objects, ds.layout, ds.spec, shard.key, manifest).tagged(version=version)
        else:
            made = read_again(objects, ds.spec, manifest, kept) if unread(kept) else kept
        yield dg.Output(made, "concat_grids", data_version=dg.DataVersion(version))
        if kept is None:
            remove_stale(objects, ds.layout, shard.key)
