"""vLLM servers that this program starts, shares between runs and processes of this machine, and finds again."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from caption_assets.config import EngineConfig
from caption_assets.engines.backends import Place
from caption_assets.engines.base import EngineDown
from caption_assets.engines.processes import end_group
from caption_assets.engines.serverstate import ServerFolder, ServerInfo, ServerSpec, engines_folder
from caption_assets.engines.startup import explain
from caption_assets.engines.supervisor import STOP_GRACE_S, healthy, spawn
from caption_assets.engines.vllm_args import server_specs

log = logging.getLogger(__name__)

PROGRESS_S = 10
UNHEALTHY_GRACE_S = 15
MOST_RESTARTS = 3

Say = Callable[[str], None]


def ensure_server(spec: ServerSpec, idle_stop_s: float, say: Say, stop: threading.Event) -> tuple[ServerInfo, str]:
    """The running server of this spec and its key, started where there is none. Blocks; safe among processes.

    Raises EngineDown with vLLM's own words where it does not start, and when `stop` is set meanwhile.
    """
    folder = ServerFolder.of(spec.identity)
    folder.create()
    progress = Progress(spec, folder, say, stop)
    with folder.locked(while_waiting=lambda: progress.tick("another process starts it")):
        info = folder.info()
        if info and info.alive and folder.condemned(info):
            _end(folder, info, 0)
        elif info and info.alive and info.state == "ready" and not _healthy_in_time(info):
            say(f"the vLLM server of {spec.model} {'does not answer' if info.alive else 'has died'}: starting it again")
            _end(folder, info, 0)
        elif info and info.alive and info.state == "stopping":
            _end(folder, info, STOP_GRACE_S)
        info = folder.info()
        if not (info and info.alive and info.state in ("starting", "ready")):
            if info:
                end_group(info.server, 0)
            folder.touch(idle_stop_s)
            spawn(folder, spec)
        info = _wait_until_ready(folder, progress)
        folder.touch(idle_stop_s)
        return info, folder.key()


_PREFIX = re.compile(r"^(\(\w+ pid=\d+\) )?(\w+ [\d-]+ [\d:]+ \[[^]]+\] )?\s*")
"""What vLLM's log puts before each message."""


@dataclass
class Progress:
    """Says every PROGRESS_S what a server that is not ready is doing."""

    spec: ServerSpec
    folder: ServerFolder
    say: Say
    stop: threading.Event

    def __post_init__(self) -> None:
        self._began = self._said = time.monotonic()

    def tick(self, what: str) -> None:
        """Raises EngineDown when nobody waits any more."""
        if self.stop.is_set():
            raise EngineDown("interrupted while vLLM was starting")
        now = time.monotonic()
        if now - self._said >= PROGRESS_S:
            self._said = now
            last = _PREFIX.sub("", (self.folder.log_tail(1) or ["no output yet"])[0])
            self.say(f"waiting for vLLM with {self.spec.model} since {now - self._began:.0f} s ({what}): {last[:100]}")


def _wait_until_ready(folder: ServerFolder, progress: Progress) -> ServerInfo:
    """The lock is held. The supervisor has the deadline."""
    spawned = time.monotonic()
    while True:
        info = folder.info()
        if info and info.state == "ready" and info.alive:
            return info
        if (info and (info.state == "ended" or not info.alive)) or (info is None and time.monotonic() - spawned > 60):
            why = info.why if info else f"its supervisor ended at once: see {folder.path / 'supervisor.log'}"
            code = info.exit_code if info else None
            raise EngineDown(explain(progress.spec.model, folder.log, folder.log_tail(400), why, code))
        progress.tick("starting")
        time.sleep(0.2)


def _healthy_in_time(info: ServerInfo) -> bool:
    deadline = time.monotonic() + UNHEALTHY_GRACE_S
    while info.alive:
        if healthy(info.url):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return False


def _end(folder: ServerFolder, info: ServerInfo, grace_s: float) -> None:
    """Ends supervisor and server, whatever state they are in."""
    try:
        if info.alive and grace_s > 0:
            os.kill(info.supervisor.pid, signal.SIGTERM)
            deadline = time.monotonic() + grace_s + 10
            while info.alive and time.monotonic() < deadline:
                time.sleep(0.1)
        if info.alive:
            os.kill(info.supervisor.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    end_group(info.server, 0)
    folder.forget()


class VllmServers:
    """Kind vllm, as the backend of a fleet: one server per replica."""

    owned = True

    def __init__(self, config: EngineConfig, say: Say = log.info) -> None:
        self._config, self._say = config, say
        self._specs: list[ServerSpec] = []
        self._restarts = 0
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        return len(self._specs) or (1 if self._config.replicas == "auto" else self._config.replicas)

    def known(self) -> Sequence[str]:
        infos = [ServerFolder.of(spec.identity).info() for spec in self._wanted()]
        return [f"{info.url}/v1" for info in infos if info and info.alive and info.state == "ready"]

    def _wanted(self) -> list[ServerSpec]:
        with self._lock:
            self._specs = self._specs or server_specs(self._config)
            return self._specs

    def places(self, stop: threading.Event) -> Sequence[Place]:
        """All replicas, started side by side."""
        specs = self._wanted()
        with ThreadPoolExecutor(len(specs)) as pool:
            return list(pool.map(lambda spec: self._place(spec, stop), specs))

    def _place(self, spec: ServerSpec, stop: threading.Event) -> Place:
        info, key = ensure_server(spec, self._config.idle_stop_s, self._say, stop)
        return Place(f"{info.url}/v1", key)

    def revive(self, index: int, stop: threading.Event) -> Place:
        spec = self._wanted()[index]
        before = ServerFolder.of(spec.identity).info()
        place = self._place(spec, stop)
        if before is None or place.url != f"{before.url}/v1":
            with self._lock:
                self._restarts += 1
            if self._restarts > MOST_RESTARTS:
                tail = "\n".join(ServerFolder.of(spec.identity).log_tail())
                raise EngineDown(f"the vLLM server of {spec.model} has died {self._restarts} times; its log ends:\n{tail}")
        return place

    def condemn(self, index: int) -> None:
        ServerFolder.of(self._wanted()[index].identity).condemn()

    def touch(self) -> None:
        for spec in self._specs:
            ServerFolder.of(spec.identity).touch(self._config.idle_stop_s)


@dataclass(frozen=True)
class EngineStatus:
    """One server of this user on this machine. state: starting, ready, stopping, ended; times in seconds."""

    identity: str
    model: str
    state: str
    pid: int
    endpoint: str
    started_at: float
    idle_s: float
    idle_stop_s: float
    log: Path
    why: str | None

    @property
    def idle(self) -> str:
        if self.state == "ended":
            return self.why or "ended by itself"
        return f"{self.idle_s:.0f} s of {self.idle_stop_s:.0f} s"


def engine_status() -> list[EngineStatus]:
    """The servers of this user on this machine, those that ended within a day included."""
    rows = []
    for folder in _folders():
        if info := folder.info():
            idle_s, limit_s = folder.idle()
            state = info.state if info.alive else "ended"
            if state == "ended" and idle_s > 86_400:
                continue
            rows.append(
                EngineStatus(
                    folder.path.name, folder.spec().model, state, info.server.pid, f"{info.url}/v1", info.started_at,
                    idle_s, limit_s, folder.log, info.why,
                )
            )  # fmt: skip
    return rows


def stop_engines(say: Say = log.info) -> int:
    """Stops every server of this user on this machine; returns how many there were."""
    stopped = 0
    for folder in _folders():
        info = folder.info()
        if info is None:
            continue
        if info.alive:
            say(f"stopping the vLLM server of {folder.spec().model} (pid {info.server.pid})")
            stopped += 1
        _end(folder, info, STOP_GRACE_S)
    return stopped


def _folders() -> list[ServerFolder]:
    root = engines_folder()
    return [ServerFolder(path) for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []
