"""captions: the model's replies, every grid asked once."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from caption_assets.assets.shard_run import ShardRun, asking_asset, caption_round
from caption_assets.partitions import Dataset
from caption_assets.resources.engine import CaptionEngine
from caption_assets.resources.store import StoreResource


def captions(ds: Dataset) -> dg.AssetsDefinition:
    @asking_asset(ds, "captions")
    def captions(
        context: dg.AssetExecutionContext, manifest: Any, mapping: Any, store: StoreResource, engine: CaptionEngine
    ) -> Iterator[dg.MaterializeResult]:
        """One row per request: the raw reply and how it was made, in chunks that are written while the shard is at work."""
        yield from caption_round(ShardRun(context, ds, store), engine, manifest, mapping, "captions")

    return captions
