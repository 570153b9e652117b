"""The folder of one vLLM server: what its users and its supervisor know of each other.

spec.json    how it is started (no secrets)        api_key     0600
server.json  where it is, written by the supervisor; lock   held while it is looked for, started or stopped
last_used    touched by its users; holds the idle time in seconds after which it stops
server.log   everything vLLM said
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

from caption_assets.engines.processes import Process, alive

STATE_ENV = "CAPTION_ASSETS_STATE"


def engines_folder() -> Path:
    """Where all servers of this user on this machine are known: $CAPTION_ASSETS_STATE/engines."""
    state = os.environ.get(STATE_ENV) or "~/.local/state/caption_assets"
    return Path(state).expanduser() / "engines"


@dataclass(frozen=True)
class ServerSpec:
    """How a server is started. argv: without the port; environment: what is added to the user's own."""

    identity: str
    model: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    deadline_s: float = 3600


@dataclass(frozen=True)
class ServerInfo:
    """What the supervisor says. state: stopping and ended are for good; a new supervisor starts anew."""

    state: Literal["starting", "ready", "stopping", "ended"]
    supervisor: Process
    server: Process
    port: int
    started_at: float
    ready_at: float | None = None
    exit_code: int | None = None
    why: str | None = None

    @property
    def alive(self) -> bool:
        return alive(self.supervisor)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class ServerFolder:
    """The files of one server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "server.log"

    @classmethod
    def of(cls, identity: str) -> ServerFolder:
        return cls(engines_folder() / identity)

    def create(self) -> None:
        """Made for this user's eyes only, with a key that is drawn once per start."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def write_spec(self, spec: ServerSpec) -> None:
        self._write("spec.json", asdict(spec))

    def spec(self) -> ServerSpec:
        value = self._read("spec.json") or {}
        return ServerSpec(**{**value, "argv": tuple(value["argv"])})

    def new_key(self) -> None:
        self._put("api_key", secrets.token_urlsafe(32))

    def key(self) -> str:
        return (self.path / "api_key").read_text()

    def write_info(self, info: ServerInfo) -> None:
        self._write("server.json", asdict(info))

    def info(self) -> ServerInfo | None:
        """What the supervisor wrote last; None before it wrote anything, or where it was written by something else."""
        value = self._read("server.json")
        try:
            return value and ServerInfo(
                **{**value, "supervisor": Process(*value["supervisor"]), "server": Process(*value["server"])}
            )
        except (TypeError, KeyError):
            return None

    def forget(self) -> None:
        """No server is known any more."""
        (self.path / "server.json").unlink(missing_ok=True)

    def condemn(self) -> None:
        """The server that is known now is not to be used again; who looks for it next ends it and starts another."""
        if info := self.info():
            self._put("condemned", info.server.token)

    def condemned(self, info: ServerInfo) -> bool:
        try:
            return (self.path / "condemned").read_text() == info.server.token
        except OSError:
            return False

    def touch(self, idle_stop_s: float) -> None:
        """Somebody uses it, and wants it to stop after so much idle time."""
        with contextlib.suppress(OSError):
            (self.path / "last_used").write_text(f"{idle_stop_s:g}")

    def idle(self) -> tuple[float, float]:
        """Seconds since the last use, and after how many it is to stop."""
        try:
            file = self.path / "last_used"
            return max(0.0, time.time() - file.stat().st_mtime), float(file.read_text())
        except (OSError, ValueError):
            return 0.0, 900.0

    def log_tail(self, lines: int = 15) -> list[str]:
        """The last lines of the log that say something."""
        return tail_of(self.log, lines)

    @contextlib.contextmanager
    def locked(self, while_waiting: Callable[[], None] | None = None) -> Iterator[bool]:
        """Holds the folder's lock, which the kernel frees when its holder dies.

        while_waiting: called every half second until it is free; it may raise. Without it nobody waits, and False says that
        another has it.
        """
        with open(self.path / "lock", "ab") as file:
            while not (got := _try_lock(file)) and while_waiting:
                while_waiting()
                time.sleep(0.5)
            yield got

    def _write(self, name: str, value: Any) -> None:
        self._put(name, json.dumps(value, indent=1))

    def _put(self, name: str, text: str) -> None:
        """Whole or not at all, readable by this user alone."""
        draft = self.path / f".{name}.{os.getpid()}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        os.replace(draft, self.path / name)

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return None


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def tail_of(log: Path, lines: int) -> list[str]:
    """The last lines of a log that say something; a progress bar counts as what it showed last."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 200_000))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    kept = [line.rstrip().rpartition("\r")[2] for line in text.split("\n")]
    return [line for line in kept if line.strip()][-lines:]
