"""A lease per shard in the store: one run works on a shard, another waits or says who does. Its renewal is the run's heartbeat.

A lease saves money; correctness never depends on it, since chunks have unique names. A lease is dead when its process is gone
(same machine), or when it was not renewed for its time to live by the store's clock (another machine). Machines' own clocks are
never compared: they may be minutes apart.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from caption_assets.core.objectstore import ObjectError, ObjectMissing, ObjectStore

TTL_S = 90.0
NOT_BEGUN = "not-begun-"
"""What the run id of a lease begins with that was taken for a run that is still to be made."""
READ_BACK_S = 0.25
"""Two that take a dead lease at once, or a free one in a store without conditional puts: the later write wins, both see it."""


@dataclass(frozen=True)
class Lease:
    """What lies at a lease's address. holder: `host:boot:pid:start` of the process; expires: seconds since 1970 by its clock,
    for people to read; user: who started it."""

    run_id: str
    expires: float
    holder: str
    ttl_s: float
    content: bytes
    user: str = ""

    @property
    def host(self) -> str:
        return self.holder.partition(":")[0].partition("/")[0] or "an unknown host"

    @property
    def who(self) -> str:
        """In words: the user, the host, the run and the process."""
        pid = [*self.holder.split(":"), "?", "?", "?"][2]
        run = "a run about to begin" if self.run_id.startswith(NOT_BEGUN) else f"run {self.run_id}"
        return f"{self.user or 'somebody'} on {self.host} ({run}, process {pid})"


class LeaseHeld(Exception):
    """Another run holds the shard. `lease` says which."""

    def __init__(self, uri: str, lease: Lease) -> None:
        super().__init__(
            f"{lease.who} is at work on this shard. "
            f"Wait for it or end it; if it died, the lease {uri} is given up {lease.ttl_s:g} s after its last renewal."
        )
        self.lease = lease


def user_name() -> str:
    """Who works here: $USER, else the account's name; "" for an account without one."""
    try:
        return os.environ.get("USER") or getpass.getuser()
    except (KeyError, OSError):
        return ""


def process_token(pid: int | None = None) -> str | None:
    """`host:boot:pid:start`: names one process of this machine for good. None when there is none of that pid (or a zombie).

    host tells PID namespaces apart (`name/inode`), since a container's pids mean nothing outside of it.
    """
    pid = os.getpid() if pid is None else pid
    start = _start_ticks(pid)
    return None if start is None else f"{_host()}:{_boot()}:{pid}:{start}"


def _start_ticks(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b")")[2].split()
        return None if state in (b"Z", b"X") else fields[18].decode()
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return None
    except OSError:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "0"


def _host() -> str:
    try:
        return f"{socket.gethostname()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return "-"


def read_lease(objects: ObjectStore, uri: str) -> Lease | None:
    """The lease that lies there; None where there is none. Junk is a lease of nobody, which dies like any other."""
    try:
        content = objects.read(uri)
    except ObjectMissing:
        return None
    try:
        said = json.loads(content)
        holder, user = str(said["holder"]), str(said.get("user", ""))
        return Lease(str(said["run_id"]), float(said["expires"]), holder, float(said["ttl_s"]), content, user)
    except (ValueError, KeyError, TypeError):
        return Lease("unknown", float("inf"), "", TTL_S, content)


def is_dead(objects: ObjectStore, uri: str, lease: Lease) -> bool:
    """Whether the lease's holder is gone."""
    here = runs_here(lease.holder)
    return _unrenewed_for(objects, uri) > lease.ttl_s if here is None else not here


def runs_here(token: str) -> bool | None:
    """Whether the process of a token runs on this machine; None when it is another machine's, or of before the last boot:
    machines of one name are told apart by that."""
    host, boot, pid, _ = [*token.split(":"), "", "", ""][:4]
    if host != _host() or boot != _boot() or not pid.isdigit():
        return None
    return process_token(int(pid)) == token


def _unrenewed_for(objects: ObjectStore, uri: str) -> float:
    """Seconds between now and when the lease was written, by the store's clock at both ends; -inf when that cannot be learnt. It
    may be written in the future, after which the clock was set right: nobody waits until then.

    The store tells its time by an object that is written for it, under a name that no shard has.
    """
    clock = f"{uri.rpartition('/')[0]}/_clock-{secrets.token_hex(8)}"
    try:
        written = objects.head(uri).mtime
        objects.put(clock, b"")
        now = objects.head(clock).mtime
        objects.delete(clock)
        return abs(now - written)
    except (ObjectError, OSError):
        return float("-inf")


class Held:
    """A lease that this process holds; a thread renews it until `release`. taken_from: the dead run that held it before."""

    def __init__(self, objects: ObjectStore, uri: str, run_id: str, ttl_s: float) -> None:
        self.uri = uri
        self.taken_from: str | None = None
        self._objects, self._run_id, self._ttl_s = objects, run_id, ttl_s
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def content(self, run_id: str | None = None) -> bytes:
        """A new content at every call: of two that write at once, each sees whose write was the later one."""
        said = {
            "run_id": run_id or self._run_id,
            "expires": time.time() + self._ttl_s,
            "holder": process_token(),
            "user": user_name(),
            "ttl_s": self._ttl_s,
            "beat": time.monotonic_ns(),
        }
        return json.dumps(said).encode()

    def take(self) -> Lease | None:
        """Tries once: None when it is ours now, else the lease in the way."""
        lease = read_lease(self._objects, self.uri)
        content = self.content()
        if lease is None:
            if not self._objects.put_new(self.uri, content):
                return read_lease(self._objects, self.uri) or self.take()
            if "://" not in self.uri:
                return None
        elif lease.run_id != self._run_id and not is_dead(self._objects, self.uri, lease):
            return lease
        else:
            self.taken_from = lease.run_id if lease.run_id != self._run_id else None
            self._objects.put(self.uri, content)
        time.sleep(READ_BACK_S)
        lease = read_lease(self._objects, self.uri)
        return None if lease is None or lease.content == content else lease

    def start(self) -> None:
        self._thread.start()

    def name(self, run_id: str) -> None:
        """The run that the lease was taken for, once it has an id."""
        with self._lock:
            self._objects.put(self.uri, self.content(run_id))
            self._run_id = run_id

    def _renew(self) -> None:
        while not self._stop.wait(self._ttl_s / 3):
            try:
                with self._lock:
                    lease = read_lease(self._objects, self.uri)
                    if lease is not None and lease.run_id != self._run_id:
                        return  # it was taken for dead: both work on, and the output is still right
                    self._objects.put(self.uri, self.content())
            except (ObjectError, OSError):
                continue  # the store may be back at the next beat; if not, the work itself will say so

    def release(self) -> None:
        """Ends the renewal and removes the lease if it is still ours."""
        self._stop.set()
        self._thread.join()
        try:
            lease = read_lease(self._objects, self.uri)
            if lease is not None and lease.run_id == self._run_id and lease.holder == process_token():
                self._objects.delete(self.uri)
        except (ObjectError, OSError):
            pass  # it runs out by itself


@contextmanager
def hold(objects: ObjectStore, uri: str, run_id: str, *, wait_s: float = 0.0, ttl_s: float = TTL_S) -> Iterator[Held | None]:
    """Holds the lease while the block runs. One of the same run is no obstacle: inside of it nothing is taken or released, and
    None is given.

    Raises LeaseHeld when another run still holds it after `wait_s` seconds.
    """
    lease = read_lease(objects, uri)
    if lease is not None and lease.run_id == run_id and lease.holder == process_token():
        yield None
        return
    held, until = Held(objects, uri, run_id, ttl_s), time.monotonic() + wait_s
    while (lease := held.take()) is not None:
        if time.monotonic() >= until:
            raise LeaseHeld(uri, lease)
        time.sleep(min(2.0, ttl_s / 10, max(0.01, until - time.monotonic())))
    held.start()
    try:
        yield held
    finally:
        held.release()
