"""merged and failed: every record in exactly one of them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG

from caption_assets.assets.shard_run import ShardRun
from caption_assets.checks import accounted_result, coverage_result, merged_checks, sanity_result
from caption_assets.core.columns import FAILED, merged_columns
from caption_assets.display import contact_sheet, reasons_table, short
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
            "merged": out(
                "merged",
                merged_columns([p.name for p in ds.spec.prompts]),
                "One row per record with a caption: its captions and how each was made, its picture, its original record.",
            ),
            "failed": out("failed", FAILED, "One row per record without any caption: why, and whether asking again may help."),
        },
        check_specs=merged_checks(ds),
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
            yield from _published(context, ds, store, recipes, merged)

    return merged_and_failed


def _published(
    context: dg.AssetExecutionContext, ds: Dataset, store: StoreResource, recipes: dict[str, str], merged: "Merged"
) -> Iterator[Any]:
    """The check first: with an output before it, a shard would stay materialized although its records are not accounted for."""
    from caption_assets.core.sanity import look_over

    accounted = accounted_result(ds, merged.counts, merged.problems)
    if merged.problems:
        yield from _selected(context, accounted)
        raise dg.Failure("records_accounted: " + "; ".join(merged.problems[:5]), allow_retries=False)
    sanity = look_over(merged.merged_path, [prompt.name for prompt in ds.spec.prompts])
    figures = {**merged.counts, **reasons_table("reasons", merged.reasons)}
    page = _page(ds, store, context.partition_key)
    costs = _costs(ds, store, context.partition_key, recipes, merged.counts["captioned"])
    pictures = contact_sheet(store.objects, ds.spec, merged.samples) if ds.spec.thumbnails else {}
    version, layout = dg.DataVersion(merged.data_version), ds.layout
    for name, path, place, more in (
        ("failed", merged.failed_path, layout.failed, {}),
        ("merged", merged.merged_path, layout.merged, pictures),
    ):
        told = short({**figures, **more, **page, **costs})
        if name in context.selected_output_names:
            yield dg.Output(path, name, metadata=told, data_version=version)
        else:  # Dagster is told all the same: a pair of which it knows one half is out of date
            store.objects.put_file(place(context.partition_key), path)
            yield dg.AssetMaterialization(
                ds.key(name), partition=context.partition_key, metadata=told, tags={DATA_VERSION_TAG: version.value}
            )
    yield from _selected(context, accounted, coverage_result(ds, merged.counts), sanity_result(ds, sanity))


def _costs(ds: Dataset, store: StoreResource, shard: str, recipes: dict[str, str], captioned: int) -> dict[str, Any]:
    """What the shard's replies of these recipes cost, whoever asked for them. `engine_spans` ([begin, end] by endpoint) is there
    so that the costs of several shards can be added up: what two had of one endpoint at once is paid once."""
    from caption_assets.core.report import costs

    folders = [ds.layout.chunks_folder(shard, output, recipe) for output, recipe in recipes.items()]
    paid = costs.read_traffic(store.objects, folders, answers_too=False).costs
    return {**costs.spent(paid, ds.engine, captioned), "engine_spans": dg.MetadataValue.json(costs.brief(paid.busy))}


def _page(ds: Dataset, store: StoreResource, shard: str) -> dict[str, Any]:
    """The shard's page in the report, where there is one; the next report brings it up to date."""
    uri = ds.layout.report_page(shard)
    return {"report_page": dg.MetadataValue.path(uri)} if store.objects.exists(uri) else {}


def _selected(context: dg.AssetExecutionContext, *results: dg.AssetCheckResult) -> Iterator[dg.AssetCheckResult]:
    """Those that this run is to report."""
    wanted = {key.name for key in context.selected_asset_check_keys}
    yield from (result for result in results if result.check_name in wanted)
