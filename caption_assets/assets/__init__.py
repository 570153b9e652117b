"""All assets of a dataset, one module each. A module holds one factory that takes the Dataset."""

from __future__ import annotations

import dagster as dg

from caption_assets.assets.captions import captions
from caption_assets.assets.concat_grids import concat_grids
from caption_assets.assets.exports import exports
from caption_assets.assets.index import caption_index
from caption_assets.assets.manifest import manifest
from caption_assets.assets.merged import merged_and_failed
from caption_assets.assets.plan import shard_plan
from caption_assets.assets.recaptions import recaptions
from caption_assets.assets.report import report
from caption_assets.partitions import Dataset


def dataset_assets(ds: Dataset) -> list[dg.AssetsDefinition]:
    """The dataset's assets in the order records pass through them."""
    factories = (shard_plan, manifest, concat_grids, captions, recaptions, merged_and_failed, caption_index, report)
    return [*(make(ds) for make in factories), *exports(ds)]
