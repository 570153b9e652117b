"""caption_index: one DuckDB file to ask over all captions of a dataset."""

from typing import Any

import dagster as dg

from caption_assets.partitions import Dataset
from caption_assets.resources.store import StoreResource


def caption_index(ds: Dataset) -> dg.AssetsDefinition:
    @ds.asset(
        name="caption_index",
        deps=[ds.key("merged"), ds.key("failed")],
        io_manager_key="duckdb",
        kinds={"duckdb"},
    )
    def caption_index(context: dg.AssetExecutionContext, store: StoreResource) -> Any:
        """captions.duckdb with the tables captions, failed and shards, over every materialized shard whose records are
        accounted for."""
        from caption_assets.core.index import IndexRequest
        from caption_assets.shards import finished_shards

        shards, left_out = finished_shards(context.instance, ds, store.objects)
        if left_out:
            context.log.info(f"left out, not materialized: {len(left_out)} shards, such as {', '.join(left_out[:5])}")
        return IndexRequest(spec=ds.spec, shards=shards, left_out=left_out, run_id=context.run.run_id)

    return caption_index
