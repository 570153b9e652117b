"""recaptions: what failed is asked again, then picture by picture."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from caption_assets.assets.shard_run import ShardRun, asking_asset, caption_round
from caption_assets.partitions import Dataset
from caption_assets.resources.engine import CaptionEngine
from caption_assets.resources.store import StoreResource


def recaptions(ds: Dataset) -> dg.AssetsDefinition:
    @asking_asset(ds, "recaptions", deps=[ds.key("captions")])
    def recaptions(
        context: dg.AssetExecutionContext, manifest: Any, mapping: Any, store: StoreResource, engine: CaptionEngine
    ) -> Iterator[dg.MaterializeResult]:
        """One row per further request. Grids without a good cell are asked again whole, then bad cells singly from the source.
        Selected without captions, it adds one round."""
        yield from caption_round(ShardRun(context, ds, store), engine, manifest, mapping, "recaptions")

    return recaptions
