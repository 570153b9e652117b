"""Dataset: what every asset module needs to know about the dataset it is built for; its shards are dynamic partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg

from caption_assets.config import Config, DatasetConfig, EngineConfig
from caption_assets.core import recipes
from caption_assets.core.columns import Column
from caption_assets.core.layout import Layout

CONFIG_TAG = "caption_assets/config"
GPU_POOL = "gpu"
OWNERS = ["team:captions"]
SHARD_ASSETS = ("manifest", "concat_grids", "captions", "recaptions", "merged", "failed")


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

    def op_tags(self, asset: str) -> dict[str, Any]:
        """What a cluster's launcher is asked for: `resources` of the config, in the words of Ray and Kubernetes."""
        from caption_assets.cluster import resource_tags

        return resource_tags(self.config.resources.get(asset), self.engine if asset in ("captions", "recaptions") else None)  # type: ignore[call-overload]


def column_schema(columns: tuple[Column, ...]) -> dict[str, dg.TableSchema]:
    """Definition metadata that shows a table's columns in the UI."""
    return {"dagster/column_schema": dg.TableSchema([dg.TableColumn(c.name, c.type, c.description) for c in columns])}
