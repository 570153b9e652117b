"""Dataset: what every asset module needs to know about the dataset it is built for; its shards are dynamic partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import dagster as dg

from caption_assets.cluster import largest, resource_tags
from caption_assets.config import Config, DatasetConfig, EngineConfig, StepName
from caption_assets.core import recipes
from caption_assets.core.columns import Column
from caption_assets.core.layout import Layout

CONFIG_TAG = "caption_assets/config"
GPU_POOL = "gpu"
OWNERS = ["team:captions"]
RESOURCE_ASSETS: tuple[StepName, ...] = get_args(StepName)
PREPARE_ASSETS = ("manifest", "concat_grids")
"""Need no model."""
SHARD_ASSETS = (*PREPARE_ASSETS, "captions", "recaptions", "merged", "failed")


@dataclass(frozen=True)
class Dataset:
    """One dataset of the config: its names in Dagster and its places in the store."""

    config: Config
    spec: DatasetConfig

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def engine(self) -> EngineConfig:
        return self.config.engine_of(self.spec)

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.config.store, self.name)

    @cached_property
    def shards(self) -> dg.DynamicPartitionsDefinition:
        return dg.DynamicPartitionsDefinition(name=self.partitions_name)

    @property
    def partitions_name(self) -> str:
        return f"{self.name}_shards"

    @cached_property
    def config_digest(self) -> str:
        """Run tag `caption_assets/config`: which recipe and geometry a run was launched for."""
        return recipes.config_digest(self.spec, self.engine)

    @cached_property
    def code_version(self) -> str:
        """Of captions, recaptions, merged and failed: from the config, with the revision as written."""
        return recipes.dataset_recipe(recipes.output_recipes(self.spec, self.engine, self.engine.revision))

    def key(self, asset: str) -> dg.AssetKey:
        return dg.AssetKey([self.name, asset])

    def asset(self, **kwargs: Any) -> Callable[..., dg.AssetsDefinition]:
        """dg.asset under this dataset's key prefix and group."""
        return dg.asset(key_prefix=self.name, group_name=self.name, owners=OWNERS, **kwargs)

    def shard_asset(self, **kwargs: Any) -> Callable[..., dg.AssetsDefinition]:
        """dg.asset with one partition per shard."""
        return self.asset(partitions_def=self.shards, **kwargs)

    def resource_tags(self, *assets: str) -> dict[str, Any]:
        """What a cluster's launcher is asked for, for one step or a run of several: `resources` of the config."""
        asked = [self.config.resources[asset] for asset in RESOURCE_ASSETS if asset in assets and asset in self.config.resources]
        asks_model = "captions" in assets or "recaptions" in assets
        return resource_tags(largest(asked), self.engine if asks_model else None)


def column_schema(columns: tuple[Column, ...]) -> dict[str, dg.TableSchema]:
    """Definition metadata that shows a table's columns in the UI."""
    shown = [dg.TableColumn(c.name, "struct" if c.type == "info" else c.type, c.description) for c in columns]
    return {"dagster/column_schema": dg.TableSchema(shown)}
