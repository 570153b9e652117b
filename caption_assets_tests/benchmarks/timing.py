"""Medians of CPU time for several ways of one thing, taken in turns so that a noisy machine treats them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class Median(float):
    """The median of several runs, which are kept; divided by a number, so are they."""

    runs: tuple[float, ...]

    def __new__(cls, runs: Iterable[float]) -> Median:
        kept = tuple(runs)
        median = super().__new__(cls, statistics.median(kept))
        median.runs = kept
        return median

    def __truediv__(self, by: float) -> Median:
        return Median(run / by for run in self.runs)


def cpu_medians(ways: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Median]:
    """Milliseconds of CPU time (all threads of this process) per call of each way; one warm-up call each is not counted."""
    for way in ways.values():
        way()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begun = time.process_time()
            way()
            taken[name].append((time.process_time() - begun) * 1000)
    return {name: Median(times) for name, times in taken.items()}
