"""Who answers chat requests: vLLM servers of this machine, endpoints that run already, or batch files. No Dagster here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from caption_assets.engines.base import ChatReply, ChatRequest, Engine, EngineDown, Revocation, Session

if TYPE_CHECKING:
    from caption_assets.config import EngineConfig

__all__ = ["ChatReply", "ChatRequest", "Engine", "EngineDown", "Revocation", "Session", "open_engine"]


def open_engine(config: EngineConfig) -> Engine:
    """The engine of these settings; nothing starts before it is asked something. Kind batch: an engines.batch.BatchEngine."""
    if config.kind == "batch":
        from caption_assets.engines.batch import BatchEngine

        return BatchEngine(config)
    from caption_assets.engines.backends import RunningEndpoints
    from caption_assets.engines.fleet import FleetEngine
    from caption_assets.engines.vllm_server import VllmServers

    return FleetEngine(config, RunningEndpoints(config) if config.kind == "openai" else VllmServers(config))
