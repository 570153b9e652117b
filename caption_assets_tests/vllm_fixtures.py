"""One real vLLM server with the demo model for the whole test session; it takes half a minute to start, so all share it."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from caption_assets.config import EngineConfig
from caption_assets.engines.serverstate import STATE_ENV
from caption_assets.engines.vllm_args import server_specs
from caption_assets.engines.vllm_server import ensure_server, stop_engines

DEMO_ENGINE = {"kind": "vllm", "model": "demo", "concurrency": 32, "server_args": {"max_model_len": 1024, "max_num_seqs": 32}}
"""As it stands in a test's caption_assets.yaml: with exactly these server_args the shared server is found."""


@pytest.fixture(scope="session")
def vllm_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder ($CAPTION_ASSETS_STATE) that the shared server is found in, also by processes that a test starts."""
    folder = tmp_path_factory.mktemp("vllm-state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_ENV, str(folder))
        yield folder
        stop_engines()


@pytest.fixture(scope="session")
def shared_vllm(vllm_state: Path) -> EngineConfig:
    """The configuration of the shared server, which runs."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    config = EngineConfig.model_validate(DEMO_ENGINE)
    for spec in server_specs(config):
        ensure_server(spec, config.idle_stop_s, print, threading.Event())
    return config


@pytest.fixture
def vllm_engine(shared_vllm: EngineConfig, vllm_state: Path, monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    """The configuration of a real engine, with $CAPTION_ASSETS_STATE set for this test and what it starts."""
    monkeypatch.setenv(STATE_ENV, str(vllm_state))
    return shared_vllm
