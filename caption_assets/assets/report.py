"""report: pages for people, one of the dataset and one of each shard."""

import dagster as dg

from caption_assets.display import short
from caption_assets.partitions import Dataset
from caption_assets.resources.store import StoreResource


def report(ds: Dataset) -> dg.AssetsDefinition:
    @ds.asset(
        name="report",
        deps=[ds.key("merged"), ds.key("failed")],
        kinds={"html"},
    )
    def report(context: dg.AssetExecutionContext, store: StoreResource) -> dg.MaterializeResult:
        """report/index.html: what is done, what failed and why, what it cost. report/{shard}.html: pictures with their captions
        and reasons. Pages of shards that changed since the last report are made anew; each is one file that loads nothing."""
        from caption_assets.core.modelpin import pinned_revision
        from caption_assets.core.recipes import output_recipes
        from caption_assets.core.report.datasetpage import report_metadata, write_dataset_report
        from caption_assets.core.report.shardpage import Recipe
        from caption_assets.shards import finished_shards

        objects = store.objects
        revision = pinned_revision(objects, ds.layout, ds.engine)
        recipe = Recipe(ds.spec, ds.engine, output_recipes(ds.spec, ds.engine, revision), revision)
        shards, left_out = finished_shards(context.instance, ds, objects)
        made = write_dataset_report(objects, ds.layout, recipe, list(shards), left_out)
        if made.left_out:
            context.log.info(f"left out, not finished: {len(made.left_out)} shards, such as {', '.join(made.left_out[:5])}")
        if made.waiting:
            context.log.warning(f"{len(made.waiting)} shards have no page yet: materialize the report again to go on with them")
        figures = short(report_metadata(made))
        return dg.MaterializeResult(metadata={**figures, "path": dg.MetadataValue.path(made.uri)})

    return report
