"""Whether somebody pressed Ctrl-C (or sent SIGTERM) while a Dagster run was at work."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupts:
    """`seen` is True from the first SIGINT or SIGTERM on."""

    def __init__(self, source: socket.socket) -> None:
        self._source, self._seen = source, False

    @property
    def seen(self) -> bool:
        try:
            signals = self._source.recv(1024)
        except BlockingIOError:
            signals = b""
        self._seen = self._seen or bool({signal.SIGINT, signal.SIGTERM}.intersection(signals))
        return self._seen


@contextmanager
def watched() -> Iterator[Interrupts]:
    """Notes signals below all handlers: Dagster replaces these during a run, makes a failed step of an interrupt, and forgets
    one that comes after the last step."""
    source, sink = socket.socketpair()
    source.setblocking(False)
    sink.setblocking(False)
    before = signal.set_wakeup_fd(sink.fileno(), warn_on_full_buffer=False)
    try:
        yield Interrupts(source)
    finally:
        signal.set_wakeup_fd(before)
        source.close()
        sink.close()
