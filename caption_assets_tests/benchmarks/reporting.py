"""What a benchmark says about itself: `report(Figure(…))` for each figure that belongs in docs/benchmarks.md.

A module of this package with a constant QUICK (its arguments for a run of about a minute) is run by
`python -m caption_assets_tests.benchmarks`; FULL, where it has one, holds the arguments for `--full` (without: none).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from caption_assets_tests.benchmarks.timing import Median

RESULTS = "CAPTION_ASSETS_BENCHMARK_RESULTS"
"""Environment: the file that figures are added to, one JSON object a line. Set by the command that runs all benchmarks."""


@dataclass(frozen=True)
class Figure:
    """One measured figure. ours, obvious, floor: in `unit`, of the same run; obvious_way and floor_way say what these are.

    Targets, each where there is one: at_most and at_least for ours itself, of_obvious and of_floor for its ratio to these at
    most. peers: figures of other programs in the same unit, measured on another day.
    """

    name: str
    unit: str
    ours: float
    obvious: float | None = None
    obvious_way: str = ""
    floor: float | None = None
    floor_way: str = ""
    at_most: float | None = None
    at_least: float | None = None
    of_obvious: float | None = None
    of_floor: float | None = None
    peers: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def ratio_obvious(self) -> float | None:
        return self.ours / self.obvious if self.obvious else None

    @property
    def ratio_floor(self) -> float | None:
        return self.ours / self.floor if self.floor else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the most of several runs."""
        return (min(self.ours.runs), max(self.ours.runs)) if isinstance(self.ours, Median) else None

    @property
    def target(self) -> str:
        """In words; "" without one."""
        parts = [f"at most {show(self.at_most)}" if self.at_most is not None else ""]
        parts += [f"at least {show(self.at_least)}" if self.at_least is not None else ""]
        parts += [f"at most {self.of_obvious:g} of the obvious way" if self.of_obvious else ""]
        parts += [f"at most {self.of_floor:g} of the floor" if self.of_floor else ""]
        return ", ".join(filter(None, parts))

    @property
    def met(self) -> bool | None:
        """None without a target, or where what it is measured by is not there."""
        limits = ((self.ours, self.at_most), (self.ratio_obvious, self.of_obvious), (self.ratio_floor, self.of_floor))
        met = [value <= limit for value, limit in limits if value is not None and limit is not None]
        met += [self.ours >= self.at_least] if self.at_least is not None else []
        return all(met) if met else None

    def as_json(self) -> dict[str, Any]:
        derived = {name: getattr(self, name) for name in ("ratio_obvious", "ratio_floor", "spread", "target", "met")}
        return {**vars(self), **derived, "runs": len(self.ours.runs) if isinstance(self.ours, Median) else 1}


def report(figure: Figure) -> None:
    """Says whether the target is met, and hands the figure to the command that runs all benchmarks, if that is at work."""
    if figure.met is not None:
        said = "target met" if figure.met else "TARGET MISSED"
        print(f"{said}: {figure.name}: {show(figure.ours)} {figure.unit}, {figure.target}")
    if path := os.environ.get(RESULTS):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(figure.as_json()) + "\n")


def show(value: float | None) -> str:
    """For people: three digits that matter, "" for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
