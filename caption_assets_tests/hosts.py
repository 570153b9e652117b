"""Several machines on one: processes with a host name of their own and, as root, in a network namespace of their own.

    with two_hosts() as (alpha, beta): alpha.start(project, "run") …

Servers for them listen on `alpha.hub`, which is loopback where there are no network namespaces. Each host has a Dagster home of
its own; all share the project's folder, as they would share a store.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from caption_assets_tests.project import TIMEOUT_S, Project


@dataclass
class Host:
    """`hub`: the address at which its processes reach the test's servers. `settings`: environment of its processes."""

    name: str
    hub: str
    inside: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def home(self, project: Project) -> Path:
        return project.folder / "homes" / self.name

    def popen(self, project: Project, *command: str, user: str = "somebody") -> subprocess.Popen[str]:
        named = ["sh", "-c", f'hostname {self.name} && exec "$@"', "sh"]
        home = {"DAGSTER_HOME": str(self.home(project)), "USER": user}
        process = subprocess.Popen(
            [*self.inside, *named, *command],
            cwd=project.folder,
            env={**project.environment, **home, **self.settings},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.started.append(process)
        return process

    def start(self, project: Project, *arguments: str, user: str = "somebody") -> subprocess.Popen[str]:
        """Starts `caption-assets …` on this host."""
        return self.popen(project, sys.executable, "-m", "caption_assets.cli", *arguments, user=user)

    def command(self, project: Project, *arguments: str, user: str = "somebody", code: int = 0) -> str:
        """Runs it and returns what it printed; fails when it ends with another exit code."""
        return ended(self.start(project, *arguments, user=user), code)


def ended(process: subprocess.Popen[str], *codes: int, timeout_s: float = TIMEOUT_S) -> str:
    """What a command of a host printed, once it has ended with one of these exit codes."""
    output, _ = process.communicate(timeout=timeout_s)
    assert process.returncode in codes, f"exit {process.returncode}, expected {codes}:\n{output}"
    return output


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """alpha and beta; what still runs there at the end is killed."""
    with _two_hosts() as hosts:
        try:
            yield hosts
        finally:
            for process in [process for host in hosts for process in host.started]:
                if process.poll() is None:
                    process.kill()  # its workers end with it
                    process.communicate()


@contextmanager
def _two_hosts() -> Iterator[tuple[Host, Host]]:
    names = ("alpha", "beta")
    if os.getuid() == 0 and shutil.which("ip"):
        network = _Network(names)
        try:
            if network.make():
                first, second = (Host(name, network.hub, network.inside(number)) for number, name in enumerate(names))
                yield first, second
                return
        finally:
            network.remove()
    for inside in (("unshare", "--uts"), ("unshare", "--user", "--map-root-user", "--uts")):
        if subprocess.run([*inside, "hostname", "probe"], capture_output=True).returncode == 0:
            first, second = (Host(name, "127.0.0.1", inside) for name in names)
            yield first, second
            return
    pytest.skip("this system gives no process a host name of its own (unshare --uts)")


class _Network:
    """A namespace per host, each with a cable to this one; the hub is an address of this one that all can reach."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names, self.number = names, os.getpid() % 250
        self.hub = f"198.18.{self.number}.1"

    def space(self, number: int) -> str:
        return f"captions-{os.getpid()}-{number}"

    def inside(self, number: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.space(number), "unshare", "--uts")

    def make(self) -> bool:
        """False where this container may not."""
        commands = [f"addr add {self.hub}/32 dev lo"]
        for number, _ in enumerate(self.names):
            space, ours, theirs = self.space(number), f"ca{os.getpid()}a{number}", f"ca{os.getpid()}b{number}"
            near, far = (f"198.19.{self.number}.{4 * number + end}" for end in (1, 2))
            commands += [
                f"netns add {space}",
                f"link add {ours} type veth peer name {theirs} netns {space}",
                f"addr add {near}/30 dev {ours}",
                f"link set {ours} up",
                f"-n {space} addr add {far}/30 dev {theirs}",
                f"-n {space} link set {theirs} up",
                f"-n {space} link set lo up",
                f"-n {space} route add {self.hub} via {near}",
            ]
        return all(_ip(command) for command in commands)

    def remove(self) -> None:
        for number, _ in enumerate(self.names):
            _ip(f"link del ca{os.getpid()}a{number}")
            _ip(f"netns del {self.space(number)}")
        _ip(f"addr del {self.hub}/32 dev lo")


def _ip(command: str) -> bool:
    return subprocess.run(["ip", *command.split()], capture_output=True).returncode == 0
