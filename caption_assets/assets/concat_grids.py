"""concat_grids: numbered pictures of several records in one."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from caption_assets.assets.shard_run import ShardRun, grids_complete, reusable
from caption_assets.core.columns import MAPPING
from caption_assets.partitions import Dataset, column_schema
from caption_assets.resources.store import StoreResource

if TYPE_CHECKING:
    from caption_assets.core.tables import RecordStream, TableHandle


def concat_grids(ds: Dataset) -> dg.AssetsDefinition:
    @ds.shard_asset(
        name="concat_grids",
        ins={"manifest": dg.AssetIn(ds.key("manifest"))},
        io_manager_key="parquet",
        kinds={"webdataset", "parquet"},
        metadata=column_schema(MAPPING),
        op_tags=ds.resource_tags("concat_grids"),
    )
    def concat_grids(context: dg.AssetExecutionContext, manifest: Any, store: StoreResource) -> Any:
        """WebDataset tars of grids, and one mapping row per readable record: its grid and cell, hash, size and format.

        Made already, only the pictures are read again that could not be read for a passing reason.
        """
        handle: TableHandle = manifest
        from caption_assets.core.pictures.gridding import build_grids
        from caption_assets.core.pictures.gridtars import remove_stale
        from caption_assets.core.pictures.rereading import read_again, unread
        from caption_assets.core.recipes import mapping_version

        shard = ShardRun(context, ds, store)
        version = mapping_version(ds.spec, handle.metadata["version"])
        uri = ds.layout.mapping(shard.key)
        with shard.lease():
            kept = reusable(store.objects, uri, version)
            if kept and not grids_complete(store.objects, ds.layout, shard.key, kept):
                kept = None
            made: RecordStream | TableHandle
            if kept is None:
                made = build_grids(store.objects, ds.layout, ds.spec, shard.key, handle).tagged(version=version)
            else:
                made = read_again(store.objects, ds.spec, handle, kept) if unread(kept) else kept
            yield dg.Output(made, data_version=dg.DataVersion(version))
            if kept is None:
                remove_stale(store.objects, ds.layout, shard.key)

    return concat_grids
