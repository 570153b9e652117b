"""Seats at an endpoint: how many requests may be in flight there, over all sessions of one user on one machine.

Two shards run at a time on one engine, each in a process of its own. Seat n is byte n of a file, locked by the session that sits
on it; the kernel frees it when its holder dies. Who is at work keeps its seats from request to request, and who comes later gets
what is left: one shard drains while the next one takes over. Were they served alike, both would end at once, and the engine would
wait while both prepare what comes next. Nobody starves: while a session is short of seats, the others leave it one in sixteen
(of a single seat none: who has it keeps it to its end).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

Leave = Callable[[], None]

_SET, _GET = getattr(fcntl, "F_OFD_SETLK", None), getattr(fcntl, "F_OFD_GETLK", None)
"""Locks that belong to an open file, since sessions may be in one process. Linux has them; elsewhere a session counts alone."""
_FLOCK = "hhqqi4x"
_SHORT = 1 << 20
"""The byte that sessions without enough seats hold a shared lock on."""


class Seats:
    """One session's seats at one endpoint. count: of all sessions together; full: none was left when last looked for, so nobody
    has to look again before somebody sets it to False."""

    def __init__(self, url: str, count: int) -> None:
        self.full = False
        self._count, self._modest = count, max(1, count - max(1, count // 16))
        self._free = deque(range(count))
        self._short = False
        self._file = _open(url) if _SET else None

    def take(self) -> Leave | None:
        """Takes a seat, to be left by the function that is returned; None where there is none."""
        if self._below_modest or not self._others_short():
            for _ in range(len(self._free)):
                seat = self._free.popleft()
                if self._lock(fcntl.F_WRLCK, seat):
                    return partial(self._leave, seat)
                self._free.append(seat)
        self.full = True
        self._say_short(True)
        return None

    def _leave(self, seat: int) -> None:
        self._lock(fcntl.F_UNLCK, seat)
        self._free.appendleft(seat)
        self.full = False
        self._say_short(False)

    @property
    def second_in_line(self) -> bool:
        """Others hold seats that this session wants, and it has fewer than whoever is first keeps."""
        return self._short and self._below_modest

    @property
    def _below_modest(self) -> bool:
        return self._count - len(self._free) < self._modest

    def close(self) -> None:
        """Leaves all of them."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _say_short(self, short: bool) -> None:
        if short is not self._short:
            self._short = short
            self._lock(fcntl.F_RDLCK if short else fcntl.F_UNLCK, _SHORT)

    def _others_short(self) -> bool:
        if self._file is None or _GET is None:
            return False
        found = fcntl.fcntl(self._file, _GET, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _SHORT, 1, 0))
        return struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK

    def _lock(self, kind: int, place: int) -> bool:
        """False where another session holds it. A file system that knows no locks lets everybody pass."""
        if self._file is None or _SET is None:
            return True
        try:
            fcntl.fcntl(self._file, _SET, struct.pack(_FLOCK, kind, os.SEEK_SET, place, 1, 0))
        except OSError as error:
            return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True


def _open(url: str) -> int | None:
    """The endpoint's file in the machine's folder for temporary files; None where it cannot be made."""
    folder = Path(tempfile.gettempdir()) / f"caption_assets-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
