"""Progress of the shard at work: as observations for the UI, and to whoever listens in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

OBSERVE_EVERY_S = 30.0
Listener = Callable[[str, int, "int | None", float], None]
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """`listener(stage, done, total, rate)` is called as shards of this process advance; done and total in records."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class Progress:
    """Called by core with records done, of how many, and figures; writes an observation now and then during long shards."""

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self.context, self.started = context, time.monotonic()
        self.observed = self.started

    def __call__(self, done: int, total: int | None, figures: dict[str, Any] | None = None) -> None:
        now = time.monotonic()
        rate = done / max(now - self.started, 1e-3)
        for listener in _listeners:
            listener(self.context.asset_key.path[-1], done, total, rate)
        if now - self.observed < OBSERVE_EVERY_S:
            return
        self.observed = now
        eta = {"eta_s": max(0, total - done) / rate} if total and rate else {}
        self.context.log_event(
            dg.AssetObservation(
                asset_key=self.context.asset_key,
                partition=self.context.partition_key,
                metadata={"records_so_far": done, "images_per_s": rate, **eta, **(figures or {})},
            )
        )
