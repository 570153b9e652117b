"""captions: the model's replies, every grid asked once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from caption_assets.assets.shard_run import ENGINE_RETRY, ShardRun, caption_round
from caption_assets.core.columns import CAPTIONS
from caption_assets.partitions import GPU_POOL, Dataset, column_schema
from caption_assets.resources.engine import CaptionEngine
from caption_assets.resources.store import StoreResource

if TYPE_CHECKING:
    from collections.abc import Iterator


def captions(ds: Dataset) -> dg.AssetsDefinition:
    @ds.shard_asset(
        name="captions",
        ins={"manifest": dg.AssetIn(ds.key("manifest")), "mapping": dg.AssetIn(ds.key("concat_grids"))},
        output_required=False,
        pool=GPU_POOL,
        kinds={"vllm", "parquet"},
        code_version=ds.code_version,
        retry_policy=ENGINE_RETRY,
        metadata=column_schema(CAPTIONS),
        op_tags=ds.op_tags("captions"),
    )
    def captions(  # type: ignore[no-untyped-def]
        context: dg.AssetExecutionContext, manifest, mapping, store: StoreResource, engine: CaptionEngine
    ) -> Iterator[dg.MaterializeResult]:
        """One row per request: the raw reply and how it was made, in chunks that are written while the shard is at work."""
        yield from caption_round(ShardRun(context, ds, store), engine, manifest, mapping, "captions")

    return captions
