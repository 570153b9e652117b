"""Medians of CPU time for several ways of one thing, taken in turns so that a noisy machine treats them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def cpu_medians(ways: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time (all threads of this process) per call of each way; one warm-up call each is not counted."""
    for way in ways.values():
        way()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begun = time.process_time()
            way()
            taken[name].append((time.process_time() - begun) * 1000)
    return {name: statistics.median(times) for name, times in taken.items()}
