"""Processes by /proc (Linux): whether one still is the one that was started, and the end of whole groups."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process and the moment it was started: a number alone may be another's by now."""

    pid: int
    token: str


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: [0] state, [2] process group, [19] start time in ticks since boot."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None


def identify(pid: int) -> Process | None:
    """The process that has this number now; None where there is none, or only its remains."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Process(pid, f"{boot_id()}:{fields[19]}")


def alive(process: Process) -> bool:
    return identify(process.pid) == process


def group_members(group: int) -> list[int]:
    """The living processes of a process group."""
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) and fields[2] == str(group) and fields[0] not in "ZX":
            members.append(int(entry))
    return members


def end_group(leader: Process, grace_s: float) -> None:
    """Ends the process group that `leader` was started as, also where the leader is dead already: asks, then kills.

    A group number stays taken while any member lives, so the group is another's only if its leader lives and is not ours.
    """
    living = identify(leader.pid)
    if (living is not None and living != leader) or not leader.token.startswith(boot_id()):
        return
    deadline = time.monotonic() + grace_s
    with contextlib.suppress(ProcessLookupError):
        if living is not None and grace_s > 0:
            os.kill(leader.pid, signal.SIGTERM)
            while alive(leader) and time.monotonic() < deadline:
                time.sleep(0.1)
        os.killpg(leader.pid, signal.SIGKILL)
    while group_members(leader.pid) and time.monotonic() < deadline + 10:
        time.sleep(0.05)


def die_with_parent() -> None:
    """For the child between fork and exec: the kernel kills it when its parent is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
