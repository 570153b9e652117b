"""manifest: what a shard's source holds, record by record."""

from typing import Any

import dagster as dg

from caption_assets.assets.shard_run import ShardRun, reusable
from caption_assets.automation import prepare_condition
from caption_assets.core.columns import MANIFEST
from caption_assets.partitions import Dataset, column_schema
from caption_assets.resources.store import StoreResource


def manifest(ds: Dataset) -> dg.AssetsDefinition:
    @ds.shard_asset(
        name="manifest",
        deps=[ds.key("shard_plan")],
        io_manager_key="parquet",
        kinds={"parquet"},
        metadata=column_schema(MANIFEST),
        output_required=False,
        automation_condition=prepare_condition(ds),
        op_tags=ds.resource_tags("manifest"),
    )
    def manifest(context: dg.AssetExecutionContext, store: StoreResource) -> Any:
        """One row per source record, in source order; records that cannot be read at all carry their reason."""
        from caption_assets.core.recipes import manifest_version
        from caption_assets.core.sources import read_manifest

        shard = ShardRun(context, ds, store)
        if shard.left_to_another():
            return
        entries, tags = shard.planned()
        version = manifest_version(ds.spec, entries.digest())
        with shard.lease():
            kept = reusable(store.objects, ds.layout.manifest(shard.key), version)
            stream = kept or read_manifest(store.objects, ds.spec, entries).tagged(version=version, **tags)
            yield dg.Output(stream, data_version=dg.DataVersion(version))

    return manifest
