"""Servers of our own: started once, shared, found again, stopped. Here a stub program stands for vLLM; see test_vllm.py."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from caption_assets.config import EngineConfig
from caption_assets.engines import supervisor, vllm_server
from caption_assets.engines.base import EngineDown
from caption_assets.engines.fleet import FleetEngine
from caption_assets.engines.processes import group_members, identify
from caption_assets.engines.serverstate import STATE_ENV, ServerFolder, ServerInfo, ServerSpec
from caption_assets.engines.vllm_server import VllmServers, engine_status, ensure_server, stop_engines
from caption_assets_tests.engines.asking import HASTY, Shard

STUB = (sys.executable, "-m", "caption_assets_tests.stubs.openai_server")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv(STATE_ENV, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(vllm_server, "UNHEALTHY_GRACE_S", 0.5)
    yield tmp_path
    stop_engines()


def spec(*argv: str, identity: str = "one") -> ServerSpec:
    return ServerSpec(identity, "stub", argv or STUB, {})


def ensure(server: ServerSpec | None = None, idle_stop_s: float = 60) -> ServerInfo:
    return ensure_server(server or spec(), idle_stop_s, print, threading.Event())[0]


def until(wanted, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.05)


def test_it_is_started_once_and_shared():
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: ensure(), range(4)))
    assert len({info.server for info in together}) == 1
    code = (
        "import threading; from caption_assets.engines.vllm_server import *\n"
        "from caption_assets.engines.serverstate import ServerSpec\n"
        f"print(ensure_server(ServerSpec('one', 'stub', {STUB!r}, {{}}), 60, print, threading.Event())[0].server.pid)"
    )
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(elsewhere) == together[0].server.pid
    (status,) = engine_status()
    assert (status.state, status.model, status.pid) == ("ready", "stub", together[0].server.pid)


def test_another_identity_is_another_server():
    assert ensure().server != ensure(spec(identity="two")).server
    assert stop_engines() == 2


def test_the_key_is_in_no_command_line_and_no_log():
    info, key = ensure_server(spec(), 60, print, threading.Event())
    folder = ServerFolder.of("one")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{info.url}/v1/models")
    asked = urllib.request.Request(f"{info.url}/v1/models", headers={"Authorization": f"Bearer {key}"})
    assert urllib.request.urlopen(asked).status == 200
    for pid in (info.server.pid, info.supervisor.pid):
        assert key not in Path(f"/proc/{pid}/cmdline").read_text()
    for file in folder.path.iterdir():
        assert file.name == "api_key" or key not in file.read_text()
    assert (folder.path / "api_key").stat().st_mode & 0o777 == 0o600
    assert folder.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("victim", ["server", "supervisor"])
def test_a_killed_one_is_started_again(victim):
    before = ensure()
    os.kill(getattr(before, victim).pid, signal.SIGKILL)
    until(lambda: identify(before.server.pid) != before.server)
    after = ensure()
    assert after.server != before.server and after.alive


def test_one_that_hangs_is_ended_and_started_again(monkeypatch):
    monkeypatch.setattr(vllm_server, "healthy", lambda url: supervisor.healthy(url, timeout_s=0.3))
    before = ensure()
    os.kill(before.server.pid, signal.SIGSTOP)
    after = ensure()
    assert after.server != before.server
    assert not group_members(before.server.pid)


def test_it_stops_by_itself_when_nobody_uses_it():
    info = ensure(idle_stop_s=0.2)
    until(lambda: not info.alive)
    (status,) = engine_status()
    assert (status.state, status.idle) == ("ended", "nobody used it")
    assert not group_members(info.server.pid)


def test_it_does_not_stop_while_a_request_runs():
    info, key = ensure_server(spec(*STUB, "--latency", "3", "3"), 0.5, print, threading.Event())
    body = b'{"model": "stub", "messages": [{"role": "user", "content": "hello"}]}'
    request = urllib.request.Request(f"{info.url}/v1/chat/completions", body, {"Authorization": f"Bearer {key}"})
    assert urllib.request.urlopen(request, timeout=20).status == 200
    until(lambda: not info.alive)


def test_it_outlives_the_run_that_started_it():
    code = (
        "import os, threading; from caption_assets.engines.vllm_server import *\n"
        "from caption_assets.engines.serverstate import ServerSpec\n"
        f"ensure_server(ServerSpec('one', 'stub', {STUB!r}, {{}}), 60, print, threading.Event())\n"
        "os.killpg(0, 9)"
    )
    run = subprocess.run([sys.executable, "-c", code], start_new_session=True)
    assert run.returncode == -signal.SIGKILL
    (status,) = engine_status()
    assert status.state == "ready" and ensure().server.pid == status.pid


def test_a_start_that_was_abandoned_is_taken_over():
    """The starter dies before the server is ready: the next one waits for the same server."""
    slow = spec(sys.executable, "-c", f"import os, time; time.sleep(3); os.execv({STUB[0]!r}, [*{STUB!r}, *os.sys.argv[1:]])")
    stop = threading.Event()

    def give_up() -> None:
        until(lambda: (info := ServerFolder.of("one").info()) is not None and info.state == "starting")
        stop.set()

    threading.Thread(target=give_up).start()
    with pytest.raises(EngineDown, match="interrupted"):
        ensure_server(slow, 60, print, stop)
    first = ServerFolder.of("one").info()
    assert first is not None and first.state == "starting"
    assert ensure(slow).server == first.server


@pytest.mark.parametrize(
    ("last_words", "says"),
    [
        ("api_server.py: error: unrecognized arguments: --no-such 3", "engine.server_args: vLLM does not know --no-such 3"),
        (
            "api_server.py: error: argument --dtype: invalid choice: 'x'",
            "engine.server_args: error: argument --dtype: invalid choice: 'x'",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "not enough memory"),
        ("ValueError: No available memory for the cache blocks.", "not enough memory"),
        ("OSError: stub is not a local folder and is not a valid model identifier", "the hub has no model stub"),
        ("OSError: Can't load. does not appear to have a file named config.json", "stub is no model that vLLM can load"),
        ("ModuleNotFoundError: No module named 'vllm'", "vLLM is not installed here"),
        ("SomethingError: quite unheard of", "SomethingError: quite unheard of"),
        ("nothing of use", "it ended with exit code 3"),
    ],
)
def test_one_that_does_not_start_says_why(last_words, says):
    argv = (
        sys.executable,
        "-c",
        "import sys; print('INFO a line'); print(sys.argv[1], file=sys.stderr); sys.exit(3)",
        last_words,
    )
    with pytest.raises(EngineDown) as raised:
        ensure(spec(*argv))
    message = str(raised.value)
    assert message.splitlines()[0] == f"vLLM with stub did not start: {says}" or says in message.splitlines()[0]
    assert last_words in message and "INFO a line" in message and "server.log" in message


def test_waiting_lines_tell_what_vllm_does_without_its_logs_prefix(tmp_path, monkeypatch):
    monkeypatch.setattr(vllm_server, "PROGRESS_S", 0.0)
    said, folder = [], ServerFolder(tmp_path)
    progress = vllm_server.Progress(ServerSpec("x", "a model", (), {}), folder, said.append, threading.Event())
    progress.tick("starting")
    folder.log.write_text("(EngineCore pid=7) INFO 12-01 06:21:37 [base.py:280] Loading weights took 0.01 seconds\n")
    progress.tick("starting")
    assert [line.partition("(starting): ")[2] for line in said] == ["no output yet", "Loading weights took 0.01 seconds"]


def test_a_port_that_was_taken_meanwhile_is_changed(tmp_path):
    """It is free when it is chosen; another may be quicker."""
    unlucky = (
        "import os, sys\nif not os.path.exists('tried'):\n    open('tried', 'w').write(sys.argv[-1])\n"
        "    print('OSError: [Errno 98] Address already in use')\n    sys.exit(1)\n"
        f"os.execv({STUB[0]!r}, [*{STUB!r}, *sys.argv[1:]])"
    )
    info = ensure(spec(sys.executable, "-c", unlucky))
    assert (ServerFolder.of("one").path / "tried").read_text() != str(info.port)


def config() -> EngineConfig:
    return EngineConfig(kind="vllm", model="stub", concurrency=8, request_timeout_s=5)


def test_a_server_that_is_killed_during_a_shard_is_started_again_and_the_shard_goes_on(monkeypatch):
    monkeypatch.setattr(vllm_server, "server_specs", lambda config: [spec(*STUB, "--latency", "0.02", "0.05")])
    engine, shard = FleetEngine(config(), VllmServers(config()), HASTY), Shard(200)

    async def go() -> None:
        async with engine.session() as session:
            captioning = asyncio.create_task(shard.through(session))
            while len(shard.replies) < 50:
                await asyncio.sleep(0.02)
            os.kill(engine_status()[0].pid, signal.SIGKILL)
            await captioning

    asyncio.run(go())
    assert not shard.wrong and len({reply.endpoint for reply in shard.replies.values()}) == 2


def test_a_server_that_seems_well_and_answers_nothing_is_started_again(monkeypatch):
    monkeypatch.setattr(vllm_server, "server_specs", lambda config: [spec(*STUB, "--latency", "0.02", "0.05")])
    settings = config().model_copy(update={"request_timeout_s": 1.0})
    engine, shard = FleetEngine(settings, VllmServers(settings), dataclasses.replace(HASTY, outage_s=10)), Shard(120)

    async def go() -> None:
        async with engine.session() as session:
            captioning = asyncio.create_task(shard.through(session))
            while len(shard.replies) < 40:
                await asyncio.sleep(0.02)
            hang = urllib.request.Request(engine_status()[0].endpoint.replace("/v1", "/stub/set"), b'{"behaviour": "hang"}')
            await asyncio.to_thread(urllib.request.urlopen, hang)
            await captioning

    asyncio.run(go())
    assert not shard.wrong and len({reply.endpoint for reply in shard.replies.values()}) == 2


def test_a_server_that_dies_again_and_again_ends_the_run(monkeypatch):
    monkeypatch.setattr(vllm_server, "server_specs", lambda config: [spec(*STUB, "--latency", "0.3", "0.3")])
    monkeypatch.setattr(vllm_server, "MOST_RESTARTS", 1)
    engine, shard, over = FleetEngine(config(), VllmServers(config()), HASTY), Shard(20), threading.Event()

    def kill() -> None:
        while not over.wait(0.1):
            for status in engine_status():
                if status.state == "ready":
                    os.kill(status.pid, signal.SIGKILL)

    async def go() -> None:
        async with engine.session() as session:
            await shard.through(session)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(EngineDown, match="has died 2 times"):
            asyncio.run(go())
    finally:
        over.set()
        killer.join()


def test_replicas_are_a_fleet(monkeypatch):
    two = [dataclasses.replace(spec(*STUB, "--latency", "0.02", "0.05"), identity=name) for name in ("one", "two")]
    monkeypatch.setattr(vllm_server, "server_specs", lambda config: two)
    engine, shard = FleetEngine(config(), VllmServers(config()), HASTY), Shard(100)

    async def go() -> None:
        async with engine.session() as session:
            await shard.through(session)

    asyncio.run(go())
    assert not shard.wrong and len({reply.endpoint for reply in shard.replies.values()}) == 2
