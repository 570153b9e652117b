"""Who answers chat requests: vLLM servers of this machine, endpoints that run already, or batch files. No Dagster here."""

from __future__ import annotations

from caption_assets.config import EngineConfig
from caption_assets.engines.backends import RunningEndpoints
from caption_assets.engines.base import ChatReply, ChatRequest, Engine, EngineDown, Revocation, Session
from caption_assets.engines.fleet import FleetEngine

__all__ = ["ChatReply", "ChatRequest", "Engine", "EngineDown", "Revocation", "Session", "open_engine"]


def open_engine(config: EngineConfig) -> Engine:
    """The engine of these settings; nothing starts before the first request of a session. Kind batch: see engines.batch."""
    if config.kind == "openai":
        return FleetEngine(config, RunningEndpoints(config))
    raise ValueError(f"engine.kind {config.kind} has no sessions; batch files go through engines.batch")
