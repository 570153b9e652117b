"""merged and failed: every record in exactly one of them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from caption_assets.assets.shard_run import ShardRun
from caption_assets.core.columns import FAILED, merged_columns
from caption_assets.display import contact_sheet, reasons_table
from caption_assets.partitions import OWNERS, Dataset, column_schema
from caption_assets.resources.store import StoreResource

if TYPE_CHECKING:
    from caption_assets.core.merging import Merged


def merged_and_failed(ds: Dataset) -> dg.AssetsDefinition:
    def out(name: str, columns: Any, description: str) -> dg.AssetOut:
        return dg.AssetOut(
            key=ds.key(name),
            is_required=False,
            io_manager_key="parquet",
            group_name=ds.name,
            kinds={"parquet", "duckdb"},
            code_version=ds.code_version,
            owners=OWNERS,
            description=description,
            metadata=column_schema(columns),
        )

    @dg.multi_asset(
        name=f"{ds.name}__merged",
        partitions_def=ds.shards,
        can_subset=True,
        ins={"manifest": dg.AssetIn(ds.key("manifest")), "mapping": dg.AssetIn(ds.key("concat_grids"))},
        deps=[ds.key("captions"), ds.key("recaptions")],
        outs={
            "merged": out("merged", merged_columns([p.name for p in ds.spec.prompts]), "One row per record with a caption."),
            "failed": out("failed", FAILED, "One row per record without any caption, and why."),
        },
        check_specs=[
            dg.AssetCheckSpec(
                "records_accounted",
                asset=ds.key("merged"),
                blocking=True,
                partitions_def=ds.shards,
                description="Every planned record is in merged or in failed, and in one of them only.",
            )
        ],
        op_tags=ds.resource_tags("merged"),
    )
    def merged_and_failed(context: dg.AssetExecutionContext, manifest: Any, mapping: Any, store: StoreResource) -> Iterator[Any]:
        """Joins manifest, mapping and replies. Both tables are published together or not at all."""
        from caption_assets.core.merging import merge_shard
        from caption_assets.core.objectstore import scratch_dir

        shard = ShardRun(context, ds, store)
        recipes, _ = shard.recipes()
        with tempfile.TemporaryDirectory(prefix="caption-assets-", dir=scratch_dir()) as scratch, shard.lease():
            merged = merge_shard(
                shard.objects, ds.layout, ds.spec, shard.key, recipes, manifest, mapping, Path(scratch), run_id=shard.run_id
            )
            yield from _published(context, ds, store, merged)

    return merged_and_failed


def _published(context: dg.AssetExecutionContext, ds: Dataset, store: StoreResource, merged: "Merged") -> Iterator[Any]:
    """The check first: with an output before it, a shard would stay materialized although its records are not accounted for."""
    check = dg.AssetCheckResult(
        check_name="records_accounted",
        asset_key=ds.key("merged"),
        passed=not merged.problems,
        metadata={
            **merged.counts,
            **({"problems": dg.MetadataValue.text("\n".join(merged.problems))} if merged.problems else {}),
        },
    )
    if merged.problems:
        if context.selected_asset_check_keys:
            yield check
        raise dg.Failure("records_accounted: " + "; ".join(merged.problems[:5]), allow_retries=False)
    version = dg.DataVersion(merged.data_version)
    figures = {**merged.counts, "reasons": reasons_table(merged.reasons)}
    pictures = contact_sheet(store.objects, ds.spec, merged.samples) if ds.spec.thumbnails else {}
    paths = {"failed": merged.failed_path, "merged": merged.merged_path}
    for name, path in paths.items():
        if name in context.selected_output_names:
            yield dg.Output(path, name, metadata={**figures, **(pictures if name == "merged" else {})}, data_version=version)
        else:
            store.objects.put_file({"failed": ds.layout.failed, "merged": ds.layout.merged}[name](context.partition_key), path)
    if context.selected_asset_check_keys:
        yield check
