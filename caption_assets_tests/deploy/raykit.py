"""A real Ray cluster on loopback: a head that runs the jobs API, and worker nodes at addresses of their own (and with host names
of their own, where the kernel lets us).

Everything that is started carries a mark in its environment, and whatever carries it is ended at the end. Ray listens on all
interfaces, so the cluster wants a token.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from caption_assets.engines.processes import die_with_parent
from caption_assets_tests.servers import free_port

MARK, NODE = "CAPTION_ASSETS_TEST_CLUSTER", "CAPTION_ASSETS_TEST_NODE"
UP_S = 600
"""Generous: on an idle machine a head takes 8 s, a worker 4 s."""
OBJECT_STORE_BYTES = 80_000_000


@dataclass
class RayCluster:
    """folder: Ray's own files; head, workers: addresses, no other cluster's; port: the head's; jobs: address of the jobs API;
    environment: of all nodes and their jobs."""

    folder: Path
    head: str
    port: int
    jobs: str
    environment: dict[str, str]
    workers: list[str]
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def client_environment(self) -> dict[str, str]:
        """What everything needs that talks to the cluster."""
        return {name: value for name, value in self.environment.items() if name.startswith("RAY_AUTH")}

    def start_node(self, host: str, cpus: int, *more: str) -> None:
        """A node at `host`, without waiting for it; a worker where `more` does not say that it is the head."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--node-ip-address", host, "--num-cpus", str(cpus)]
        command += [
            "--object-store-memory",
            str(OBJECT_STORE_BYTES),
            "--temp-dir",
            str(self.folder),
            "--disable-usage-stats",
            "--include-log-monitor",
            "false",
            "--dashboard-agent-listen-port",
            str(free_port(host)),
        ]
        command += ["--block", *(more or ("--address", f"{self.head}:{self.port}"))]
        if has_host_names():
            command = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host_name(host), *command]
        with open(self.folder / f"{host}.log", "ab") as log:
            self.nodes[host] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment, NODE: host},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def api(self, path: str, data: bytes | None = None) -> Any:
        """A GET at the dashboard's or the jobs' API, or a POST of JSON."""
        headers = {"Authorization": f"Bearer {self.environment['RAY_AUTH_TOKEN']}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.jobs}{path}", data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def takes_jobs(self) -> bool:
        """Whether a job can be submitted: a node is up a little earlier than its agent."""
        try:
            self.api("/api/jobs/", b'{"entrypoint": "true"}')
        except OSError:
            return False
        return True

    def submitted(self) -> dict[str, dict[str, Any]]:
        """Every Ray job so far by the id of its Dagster run."""
        jobs = [(job["metadata"] or {}, job) for job in self.api("/api/jobs/")]
        return {metadata["dagster/run-id"]: job for metadata, job in jobs if "dagster/run-id" in metadata}

    def living_hosts(self) -> set[str]:
        nodes = self.api("/nodes?view=summary")["data"].get("summary", [])
        return {node.get("ip") for node in nodes if node["raylet"].get("state") == "ALIVE"}

    def processes(self, wanted: Callable[[str, dict[str, str]], bool] = lambda *_: True) -> list[int]:
        """Living processes of the cluster and its jobs, by command line and environment."""
        return [pid for pid, command, environment in _marked(self.environment[MARK]) if wanted(command, environment)]

    def kill_job(self, run_id: str) -> None:
        """SIGKILL to the processes that execute a Dagster run, not to Ray's own."""
        pids = self.processes(lambda command, _: "execute_run" in command and run_id in command)
        assert pids, f"run {run_id} has no process"
        _kill(pids)

    def wait_for(self, look: Callable[[], Any], what: str, seconds: float = UP_S) -> Any:
        """Asks until the answer is true."""
        end = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < end, f"not in {seconds:g} s: {what}"
            time.sleep(0.5)
        return found

    def log(self, host: str) -> str:
        """The end of what a node printed."""
        return (self.folder / f"{host}.log").read_text(errors="replace")[-3000:]

    def bring_up(self, host: str, cpus: int, *more: str) -> None:
        """A node, when it is up. Ray gives up a node that is not up within 30 s, which a busy machine may need."""
        end = time.monotonic() + UP_S
        while time.monotonic() < end:
            self._end(host)
            self.start_node(host, cpus, *more)
            while self.nodes[host].poll() is None and time.monotonic() < end:
                try:
                    if host in self.living_hosts():
                        return
                except OSError:
                    pass
                time.sleep(0.5)
        raise AssertionError(f"{host} is not up in {UP_S} s: {self.log(host)}")

    def host_of(self, run_id: str) -> str:
        """The node that executes a Dagster run."""
        (host,) = {
            env[NODE] for _, command, env in _marked(self.environment[MARK]) if "execute_run" in command and run_id in command
        }
        return host

    def kill_node(self, host: str) -> None:
        """SIGKILL to everything of a node at once, as if its machine had lost power."""
        self._end(host)

    def _end(self, host: str) -> None:
        _end_all(lambda: self.processes(lambda _, environment: environment.get(NODE) == host))
        if host in self.nodes:
            self.nodes.pop(host).wait()


def host_name(host: str) -> str:
    return f"node-{host.replace('.', '-')}"


@cache
def has_host_names() -> bool:
    """Whether nodes may have host names of their own, so that they are different hosts for leases, too."""
    return bool(shutil.which("unshare")) and not subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode


@contextmanager
def ray_cluster(cpus: int = 0, workers: int = 0, environment: Mapping[str, str] | None = None) -> Iterator[RayCluster]:
    """A head with so many CPUs for jobs and workers with one CPU each, all up. environment: more for all nodes."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as name:
        # Some ports of Ray are always the same: another cluster on this machine has other addresses.
        network = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}"
        head, dashboard = f"{network}.1", free_port()
        settings = {
            **(environment or {}),
            MARK: uuid.uuid4().hex,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
        hosts = [f"{network}.{n + 2}" for n in range(workers)]
        cluster = RayCluster(Path(name), head, free_port(head), f"http://127.0.0.1:{dashboard}", settings, hosts)
        arguments = ["--head", "--port", str(cluster.port), "--ray-client-server-port", str(free_port(head))]
        arguments += ["--dashboard-host", "127.0.0.1", "--dashboard-port", str(dashboard)]
        try:
            cluster.bring_up(head, cpus, *arguments)
            for host in hosts:
                cluster.bring_up(host, 1)
            cluster.wait_for(cluster.takes_jobs, "the cluster takes jobs")
            yield cluster
        finally:
            for node in cluster.nodes.values():
                node.send_signal(signal.SIGTERM)
            for node in cluster.nodes.values():
                try:
                    node.wait(20)
                except subprocess.TimeoutExpired:
                    node.kill()
                    node.wait()
            _end_all(cluster.processes)


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _end_all(alive: Callable[[], list[int]]) -> None:
    for _ in range(100):
        if not (pids := alive()):
            return
        _kill(pids)
        time.sleep(0.1)
    raise AssertionError(f"processes that cannot be ended: {alive()}")


def _marked(mark: str) -> Iterator[tuple[int, str, dict[str, str]]]:
    """pid, command line and environment of every living process but this one that carries the mark."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z":
                continue
        except OSError:
            continue
        if mark.encode() in environment:
            pairs = (pair.partition("=") for pair in environment.decode(errors="replace").split("\0"))
            yield int(entry.name), command, {key: value for key, _, value in pairs}
