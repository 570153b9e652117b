"""The captioning engine as a Dagster resource: nothing starts before the first question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from caption_assets.config import EngineConfig

if TYPE_CHECKING:
    from caption_assets.engines import Engine

_engines: dict[str, Engine] = {}


class CaptionEngine(dg.ConfigurableResource):
    """Vision-language models: vLLM servers of this machine, endpoints that run already, or batch files.

    Which one, and with which model, is each dataset's `engine` in caption_assets.yaml, since it is part of the recipe.
    """

    def open(self, config: EngineConfig) -> Engine:
        """The engine of these settings, one per process; it starts at its first session and is shared by later runs."""
        from caption_assets.engines import open_engine

        key = config.model_dump_json()
        if key not in _engines:
            _engines[key] = open_engine(config)
        return _engines[key]
