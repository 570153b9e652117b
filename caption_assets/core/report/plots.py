"""The plots of the pages: small SVG pictures as data URIs. A picture's text and styles cannot reach the page it stands in."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from caption_assets.core.report.reading import EDGES, FINE_CHARS, MOST_CHARS

WIDTH, HEIGHT = 5.2, 2.3
"""Inches of 72 px."""
BARS = 40
WIDTHS = (2, 10, 20, 50, 100, 200)
"""Characters per bar."""
POINTS = 400
COLOURS = ("#3763b8", "#c4622d", "#3a8a5c", "#8d4fa8", "#9a7b1c")
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "caption_assets",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": "#4a4f58",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "xtick.color": "#4a4f58",
    "ytick.color": "#4a4f58",
    "legend.frameon": False,
    "path.simplify": True,
}
_style = threading.Lock()
"""Matplotlib's settings are one set per process."""


def lengths(found: Mapping[str, Sequence[int]]) -> str | None:
    """How many texts have which length, by output. None without texts."""
    found = {name: counts for name, counts in found.items() if any(counts)}
    if not found:
        return None
    low = min(int(EDGES[np.flatnonzero(counts)[0]]) for counts in found.values())
    last = max(len(counts) for counts in found.values())
    high = int(EDGES[last]) if last < len(EDGES) else MOST_CHARS + 10
    width = next(width for width in WIDTHS if high - low <= width * BARS and (width >= 10 or high <= FINE_CHARS))
    edges = np.arange(low - low % width, high + width, width)

    def draw(axes: Axes) -> None:
        for colour, (name, counts) in zip(_colours(len(found)), found.items(), strict=True):
            sums, _ = np.histogram(EDGES[: len(counts)], edges, weights=counts)
            axes.stairs(sums, edges, fill=True, color=colour, alpha=0.9 if len(found) == 1 else 0.5, label=name)
        axes.set_xlabel("characters" + (f" ({MOST_CHARS:,}: all that are longer)" if high > MOST_CHARS else ""))
        axes.set_ylabel("captions")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        if len(found) > 1:
            axes.legend()

    return _svg(draw, whole=True)


def rate(step_s: float, rates: Sequence[float]) -> str | None:
    """Captions per second over the time at work. None where it was not measured."""
    if not rates:
        return None
    total = step_s * len(rates)
    unit, name = (1, "s") if total < 300 else (60, "min") if total < 10_800 else (3600, "h")

    def draw(axes: Axes) -> None:
        axes.stairs(rates, np.linspace(0, total / unit, len(rates) + 1), fill=True, color=COLOURS[0], alpha=0.9)
        axes.set_xlabel(f"{name} at work, pauses left out")
        axes.set_ylabel("captions/s")

    return _svg(draw)


def by_shard(values: Sequence[float | None], label: str, top: float | None = None) -> str | None:
    """A figure of each shard, in the order of the plan; averaged where there are many. None where nobody has one."""
    known = [(index, value) for index, value in enumerate(values, 1) if value is not None]
    if not known:
        return None
    at, heights = np.array(known, float).T
    if len(at) > POINTS:
        parts = np.array_split(np.arange(len(at)), POINTS)
        at, heights = np.array([at[p].mean() for p in parts]), np.array([heights[p].mean() for p in parts])

    def draw(axes: Axes) -> None:
        few = len(at) <= 60
        axes.plot(at, heights, color=COLOURS[0], linewidth=1.2, marker="o" if few else None, markersize=4)
        axes.set_xlabel("shard, in the order of the plan")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_ylim(0, top or max(heights.max() * 1.15, 1e-9))

    return _svg(draw)


def _colours(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def _svg(draw: Callable[[Axes], None], whole: bool = False) -> str:
    """whole: heights are whole numbers."""
    sink = io.BytesIO()
    with _style, matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole))
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return "data:image/svg+xml;base64," + base64.b64encode(sink.getvalue()).decode()
