"""Real vLLM with the demo model."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from caption_assets.config import EngineConfig
from caption_assets.engines import open_engine
from caption_assets.engines.base import ChatReply, ChatRequest, EngineDown
from caption_assets.engines.batch import BatchEngine
from caption_assets.engines.canaries import Form, make_canary, read_canary
from caption_assets.engines.serverstate import STATE_ENV, ServerFolder
from caption_assets.engines.vllm_server import EngineStatus, engine_status
from caption_assets_tests.vllm_fixtures import DEMO_ENGINE

pytestmark = pytest.mark.timeout(900)

SAMPLING = {"temperature": 0.0, "top_p": 0.95, "max_tokens": 100, "repetition_penalty": 1.05, "seed": 0, "stop": []}


def requests(form: Form, count: int) -> list[ChatRequest]:
    """Coloured shapes whose colours are known, each number another picture."""
    canaries = (make_canary(form, number, SAMPLING) for number in range(count))
    return [dataclasses.replace(canary.request, request_id=f"{form}-{canary.number}") for canary in canaries]


def right(reply: ChatReply) -> bool:
    form, _, number = reply.request_id.partition("-")
    return reply.error is None and read_canary(make_canary(form, int(number), {}), reply).right  # type: ignore[arg-type]


def ask(config: EngineConfig, *asked: ChatRequest) -> tuple[list[ChatReply], dict[str, object]]:
    async def go() -> tuple[list[ChatReply], dict[str, object]]:
        async with open_engine(config).session() as session:
            replies = await asyncio.gather(*(session.ask(request) for request in asked))
            assert not await session.settle()
            return list(replies), dict(session.metrics())

    return asyncio.run(go())


def server() -> EngineStatus:
    (status,) = [s for s in engine_status() if s.state == "ready"]
    return status


def test_it_names_the_colours_of_every_cell(vllm_engine):
    replies, figures = ask(vllm_engine, *requests("grid", 30), *requests("single", 30))
    assert sum(map(right, replies)) >= 59  # of 60
    assert {reply.endpoint for reply in replies} == {server().endpoint}
    assert all((reply.prompt_tokens or 0) > 0 and (reply.completion_tokens or 0) > 0 for reply in replies)
    assert figures["canary_requests"] <= 2 and 0 < float(str(figures["prefix_cache_hit_rate"])) <= 1


def test_a_bad_picture_is_its_own_error_and_text_alone_is_answered(vllm_engine):
    bad = ChatRequest("bad", "Describe it.", b"no picture", "image/png", (), SAMPLING)
    text = ChatRequest("text", "Say it shorter.", None, None, (), SAMPLING)
    (first, second), _ = ask(vllm_engine, bad, text)
    assert (first.error or "").startswith("model_error: 400") and second.reply


def test_it_is_shared_with_another_process(vllm_engine):
    before = server()
    code = (
        "import threading; from caption_assets.config import EngineConfig\n"
        "from caption_assets.engines.vllm_server import VllmServers\n"
        f"print(VllmServers(EngineConfig.model_validate({DEMO_ENGINE!r})).places(threading.Event())[0].url)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == before.endpoint and server().pid == before.pid


def test_its_key_is_in_no_command_line_and_no_log(vllm_engine):
    status = server()
    key = ServerFolder.of(status.identity).key()
    tree = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert key not in tree and key not in status.log.read_text() and "--api-key" not in tree


def test_what_vllm_does_not_know_is_said(vllm_engine, monkeypatch, tmp_path):
    monkeypatch.setenv(STATE_ENV, str(tmp_path))
    wrong = EngineConfig.model_validate({**DEMO_ENGINE, "server_args": {"max_modell_len": 1024}})
    with pytest.raises(EngineDown, match=r"engine.server_args: vLLM does not know --max-modell-len"):
        ask(wrong, *requests("single", 1))


def test_a_folder_that_is_no_model_is_said(vllm_engine, monkeypatch, tmp_path):
    monkeypatch.setenv(STATE_ENV, str(tmp_path / "state"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "README.md").write_text("no model")
    with pytest.raises(EngineDown, match="is no model that vLLM can load"):
        ask(EngineConfig.model_validate({**DEMO_ENGINE, "model": str(tmp_path / "model")}), *requests("single", 1))


def test_a_killed_server_is_started_again_and_the_shard_goes_on(vllm_engine):
    before = server()

    async def go() -> list[ChatReply]:
        async with open_engine(vllm_engine).session() as session:
            asks = [asyncio.create_task(session.ask(request)) for request in requests("grid", 40)]
            while not any(task.done() for task in asks):
                await asyncio.sleep(0.01)
            os.kill(before.pid, signal.SIGKILL)
            replies = await asyncio.gather(*asks)
            assert not await session.settle()
            return list(replies)

    replies = asyncio.run(go())
    assert len(replies) == 40 and sum(map(right, replies)) >= 39
    assert server().pid != before.pid
    assert not Path(f"/proc/{before.pid}").exists()


def test_a_batch_is_answered_by_run_batch(vllm_engine, tmp_path):
    engine = BatchEngine(EngineConfig.model_validate({**DEMO_ENGINE, "kind": "batch"}), scratch=tmp_path)
    bad = ChatRequest("bad", "Describe it.", b"no picture", "image/png", (), SAMPLING)
    replies = {reply.request_id: reply for reply in engine.run_local([*requests("grid", 10), bad, *requests("single", 10)])}
    assert (replies.pop("bad").error or "").startswith("model_error: 400")
    assert len(replies) == 20 and sum(map(right, replies.values())) >= 19
    assert not list(tmp_path.iterdir())
