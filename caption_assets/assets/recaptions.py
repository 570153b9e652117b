"""recaptions: what failed is asked again, then picture by picture."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from caption_assets.assets.shard_run import ShardRun, caption_round
from caption_assets.core.columns import CAPTIONS
from caption_assets.partitions import GPU_POOL, Dataset, column_schema
from caption_assets.resources.engine import CaptionEngine
from caption_assets.resources.store import StoreResource


def recaptions(ds: Dataset) -> dg.AssetsDefinition:
    @ds.shard_asset(
        name="recaptions",
        deps=[ds.key("captions")],
        ins={"manifest": dg.AssetIn(ds.key("manifest")), "mapping": dg.AssetIn(ds.key("concat_grids"))},
        output_required=False,
        pool=GPU_POOL,
        kinds={"vllm", "parquet"},
        code_version=ds.code_version,
        metadata=column_schema(CAPTIONS),
        op_tags=ds.resource_tags("captions"),
    )
    def recaptions(
        context: dg.AssetExecutionContext, manifest: Any, mapping: Any, store: StoreResource, engine: CaptionEngine
    ) -> Iterator[dg.MaterializeResult]:
        """One row per further request. Grids without a good cell are asked again whole, then bad cells singly from the source.
        Selected without captions, it adds one round."""
        yield from caption_round(ShardRun(context, ds, store), engine, manifest, mapping, "recaptions")

    return recaptions
