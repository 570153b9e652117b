"""Progress of the shard at work: as observations for the UI, and to whoever listens in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from caption_assets.pace import Pace

OBSERVE_EVERY_S, OBSERVE_FIRST_S = 30.0, 5.0
"""Seconds between observations: few at first, so that a short shard has some too."""
Listener = Callable[[str, int, "int | None", "float | None"], None]
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """`listener(stage, done, total, rate)` is called as shards of this process advance; done and total in records,
    rate in records per second, None at first."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class Progress:
    """Called by core with records done, of how many, and figures; writes an observation now and then during long shards. How long
    a shard will take is not told while another one has the engine."""

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self.context, self.pace = context, Pace()
        self.started = self.observed = time.monotonic()
        self.second_in_line = False

    def __call__(self, done: int, total: int | None, figures: dict[str, Any] | None = None) -> None:
        now, second_in_line = time.monotonic(), bool(figures and figures.get("second_in_line"))
        if self.second_in_line and not second_in_line:
            self.pace.forget()
        self.second_in_line = second_in_line
        self.pace.at(now, done)
        for listener in _listeners:
            listener(self.context.asset_key.path[-1], done, total, self.pace.rate)
        every = min(OBSERVE_EVERY_S, max(OBSERVE_FIRST_S, (now - self.started) / 4))
        if now - self.observed < every or self.pace.rate is None:
            return
        self.observed = now
        figures = {
            "records_so_far": done,
            "records_to_ask": total,
            "images_per_s": self.pace.average,
            "images_per_s_now": self.pace.rate,
            "eta_s": None if second_in_line or total is None else self.pace.left(total - done),
            **(figures or {}),
        }
        self.context.log_event(
            dg.AssetObservation(
                asset_key=self.context.asset_key,
                partition=self.context.partition_key,
                metadata={name: value for name, value in figures.items() if value is not None},
            )
        )
