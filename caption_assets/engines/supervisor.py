"""Owns one vLLM server: starts it, says when it is ready, stops it when nobody uses it, and ends all of its processes.

Runs as `python -m caption_assets.engines.supervisor FOLDER` in a session of its own, so that it outlives the run that needed
it. When it is killed itself, the kernel kills the server, and the next user of the folder ends what is left of it.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from caption_assets.engines.processes import Process, die_with_parent, end_group, identify
from caption_assets.engines.serverstate import ServerFolder, ServerInfo, ServerSpec

PORT_TRIES = 3
STOP_GRACE_S = 20


class Supervisor:
    """One server, from its start to the end of its last process."""

    def __init__(self, folder: ServerFolder) -> None:
        self._folder, self._spec = folder, folder.spec()
        self._stop = False
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_signal(self, *_: Any) -> None:
        self._stop = True

    def run(self) -> None:
        for tries_left in reversed(range(PORT_TRIES)):
            child, info = self._start()
            info = self._watch(child, info)
            end_group(info.server, STOP_GRACE_S if child.poll() is None else 0)
            if tries_left and self._port_was_taken(info):
                continue
            self._folder.write_info(dataclasses.replace(info, state="ended", exit_code=child.wait()))
            return

    def _start(self) -> tuple[subprocess.Popen[bytes], ServerInfo]:
        port, spec = free_port(), self._spec
        environment = {**os.environ, **spec.environment, "VLLM_API_KEY": self._folder.key()}
        with open(self._folder.log, "ab") as log:
            child = subprocess.Popen(  # noqa: S603
                [*spec.argv, "--port", str(port)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder.path,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        me, server = identify(os.getpid()), identify(child.pid)
        assert me is not None
        info = ServerInfo("starting", me, server or Process(child.pid, "dead"), port, time.time())
        self._folder.write_info(info)
        return child, info

    def _watch(self, child: subprocess.Popen[bytes], info: ServerInfo) -> ServerInfo:
        """Until the server has ended by itself, or is to be ended."""
        while child.poll() is None:
            time.sleep(0.25 if info.state == "starting" else 1)
            if self._stop:
                return self._say(info, state="stopping", why="it was told to stop")
            if info.state == "starting":
                if healthy(info.url):
                    info = self._say(info, state="ready", ready_at=time.time())
                elif time.time() - info.started_at > self._spec.deadline_s:
                    return self._say(info, state="stopping", why=f"it was not ready after {self._spec.deadline_s:g} s")
            elif self._idle(info):
                with self._folder.locked() as got:  # so that nobody is just about to use it
                    if got and self._idle(info):
                        return self._say(info, state="stopping", why="nobody used it")
        return info

    def _say(self, info: ServerInfo, **changes: Any) -> ServerInfo:
        info = dataclasses.replace(info, **changes)
        self._folder.write_info(info)
        return info

    def _idle(self, info: ServerInfo) -> bool:
        unused_s, limit_s = self._folder.idle()
        unused_s = min(unused_s, time.time() - (info.ready_at or info.started_at))
        return unused_s > limit_s and not busy(info.url)

    def _port_was_taken(self, info: ServerInfo) -> bool:
        return info.state == "starting" and any("address already in use" in line.lower() for line in self._folder.log_tail())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str, timeout_s: float) -> str | None:
    """A page of a server on this machine; None where it does not answer 200."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as response:
            return str(response.read().decode("utf-8", "replace")) if response.status == 200 else None
    except (OSError, ValueError, urllib.error.HTTPError):
        return None


def healthy(url: str, timeout_s: float = 5) -> bool:
    return fetch(f"{url}/health", timeout_s) is not None


def busy(url: str) -> bool:
    """Whether requests are under way, as far as the server says."""
    text = fetch(f"{url}/metrics", 5) or ""
    counts = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return any(line.startswith(counts) and float(line.rpartition(" ")[2]) > 0 for line in text.splitlines())


def spawn(folder: ServerFolder, spec: ServerSpec) -> None:
    """Starts a supervisor that outlives this process. The folder's lock is held."""
    folder.write_spec(spec)
    folder.new_key()
    folder.forget()
    folder.log.unlink(missing_ok=True)
    with open(folder.path / "supervisor.log", "wb") as log:
        subprocess.run(  # noqa: S603
            [sys.executable, "-m", "caption_assets.engines.supervisor", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=True,
        )


if __name__ == "__main__":
    if not os.fork():  # the parent ends at once, so that the supervisor is nobody's child
        Supervisor(ServerFolder(Path(sys.argv[1]))).run()
