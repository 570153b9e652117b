"""Recipes: what makes a reply count as the answer to today's question. Pure functions of the configuration."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from caption_assets.config import DatasetConfig, EngineConfig, PromptConfig
from caption_assets.configchecks import LARGEST_SEED
from caption_assets.core.prompts import REQUEST_FORMAT


def digest(value: Any, length: int = 16) -> str:
    """A short stable hash of plain data."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def geometry(spec: DatasetConfig) -> dict[str, Any]:
    """What decides how pictures look when they are sent."""
    if spec.grid.single:
        return {"longest_side": spec.images.longest_side}
    return spec.grid.model_dump(exclude={"keep"})


def geometry_digest(spec: DatasetConfig) -> str:
    return digest(geometry(spec))


def output_recipes(spec: DatasetConfig, engine: EngineConfig, revision: str | None) -> dict[str, str]:
    """The recipe of each output in config order; revision: as resolved, or as written for Dagster's code_version."""
    recipes: dict[str, str] = {}
    for prompt in spec.prompts:
        recipes[prompt.name] = digest(
            {
                "format": REQUEST_FORMAT,
                "model": engine.model,
                "revision": revision,
                "text": prompt.text,
                "version": prompt.version,
                "sampling": spec.sampling_of(prompt).model_dump(),
                "picture": geometry(spec) if prompt.image else None,
                "uses": {name: recipes[name] for name in prompt.uses},
            }
        )
    return recipes


def dataset_recipe(recipes: dict[str, str]) -> str:
    """One hash over all outputs, in config order."""
    return digest(list(recipes.items()))


def filter_digest(spec: DatasetConfig) -> str:
    """What the merge applies to replies: filters, in no recipe, since changing them asks nothing."""
    return digest({p.name: spec.filters_of(p).model_dump() for p in spec.prompts}, 8)


def config_digest(spec: DatasetConfig, engine: EngineConfig) -> str:
    """The tag `caption_assets/config` of a run: dataset recipe (revision as written) and geometry."""
    return digest([dataset_recipe(output_recipes(spec, engine, engine.revision)), geometry_digest(spec)])


def sampling_for(spec: DatasetConfig, prompt: PromptConfig, cells: int, attempt: int) -> dict[str, Any]:
    """The sampling of one request: max_tokens per caption times its cells, another seed for each further attempt."""
    sampling = spec.sampling_of(prompt).model_dump()
    sampling["max_tokens"] *= cells
    further, seed = attempt - 1, sampling["seed"]
    sampling["seed"] = seed + further if seed + further <= LARGEST_SEED else seed - further
    return sampling


def fields_digest(spec: DatasetConfig) -> str:
    return digest(spec.fields.model_dump(), 8)


def manifest_version(spec: DatasetConfig, plan_digest: str) -> str:
    """data_version of a manifest: what the plan says of its shard, and which fields were read."""
    return f"{plan_digest}.{fields_digest(spec)}"


def mapping_version(spec: DatasetConfig, manifest_version: str) -> str:
    """data_version of concat_grids: its manifest and everything that decides which pictures stand where."""
    return mapping_version_of(mapping_settings(spec), manifest_version)


def mapping_settings(spec: DatasetConfig) -> list[Any]:
    """What decides, for all shards alike, which pictures stand where."""
    return [geometry(spec), spec.images.model_dump(include={"max_pixels", "max_bytes", "longest_side"}), spec.dedup]


def mapping_version_of(settings: list[Any], manifest_version: str) -> str:
    """`mapping_version` for whoever asks it of 100,000 shards, with the `mapping_settings` of their dataset."""
    return digest([manifest_version, *settings])
