"""captions: the model's replies, every grid asked once."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from caption_assets.assets.shard_run import ShardRun, caption_round
from caption_assets.core.columns import CAPTIONS
from caption_assets.partitions import GPU_POOL, Dataset, column_schema
from caption_assets.resources.engine import CaptionEngine
from caption_assets.resources.store import StoreResource


def captions(ds: Dataset) -> dg.AssetsDefinition:
    @ds.shard_asset(
        name="captions",
        ins={"manifest": dg.AssetIn(ds.key("manifest")), "mapping": dg.AssetIn(ds.key("concat_grids"))},
        output_required=False,
        pool=GPU_POOL,
        kinds={"vllm", "parquet"},
        code_version=ds.code_version,
        metadata=column_schema(CAPTIONS),
        op_tags=ds.resource_tags("captions"),
    )
    def captions(
        context: dg.AssetExecutionContext, manifest: Any, mapping: Any, store: StoreResource, engine: CaptionEngine
    ) -> Iterator[dg.MaterializeResult]:
        """One row per request: the raw reply and how it was made, in chunks that are written while the shard is at work."""
        yield from caption_round(ShardRun(context, ds, store), engine, manifest, mapping, "captions")

    return captions
