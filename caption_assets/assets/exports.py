"""export_{format}: exports that are kept up to date shard by shard, for the formats in the dataset's `exports`."""

import dagster as dg

from caption_assets.assets.shard_run import ShardRun
from caption_assets.partitions import Dataset
from caption_assets.resources.store import StoreResource


def exports(ds: Dataset) -> list[dg.AssetsDefinition]:
    return [_export(ds, format) for format in ds.spec.exports]


def _export(ds: Dataset, format: str) -> dg.AssetsDefinition:
    @ds.shard_asset(
        name=f"export_{format}",
        deps=[ds.key("merged")],
        kinds={format},
        description=f"The shard's captioned records as {format}, below exports/{format}/ in the store.",
    )
    def export(context: dg.AssetExecutionContext, store: StoreResource) -> dg.MaterializeResult:
        """Files of one shard; a new shard writes just itself."""
        from caption_assets.core.exports.exporting import export as write

        shard = ShardRun(context, ds, store)
        to = f"{ds.layout.exports_folder}{format}/"
        result = write(store.objects, ds.layout, ds.spec, [shard.key], format, to)
        if result.not_merged:
            raise dg.Failure(f"{ds.name}/{shard.key} is not merged: materialize merged first", allow_retries=False)
        return dg.MaterializeResult(
            metadata={
                "path": to,
                "files_in_all": result.files,
                "bytes_in_all": result.bytes,
                "records_in_all": result.records,
                "left_out_in_all": result.left_out,
            }
        )

    return export
