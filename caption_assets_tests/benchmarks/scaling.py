"""The arithmetic of docs/scaling.md: from what was measured for one shard to a million and to a billion pictures.

    python -m caption_assets_tests.benchmarks.scaling [--per-shard 10000] [--picture-kb 500] [--grid-kb 480] [--rate R]
        [--plot docs/images/scaling.svg]

Nothing is measured here: MEASURED holds what the named commands printed on a machine of two cores. --rate: pictures a second that
one GPU was seen to caption (`images_per_s` of any captions materialization, for your model and your pictures); without it
GPU-hours are given as a formula, since no figure for a GPU can be made without one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SIZES = (10**6, 10**7, 10**8, 10**9)
CELLS = 4
MOST_PARTITIONS = 100_000
"""Of one asset: what Dagster recommends at most."""
PAGE = 1000
"""Keys in one answer of a listing."""


@dataclass(frozen=True)
class Cost:
    """CPU milliseconds a picture. command: the benchmark that printed it, behind `python -m caption_assets_tests.benchmarks.`"""

    stage: str
    cpu_ms: float
    command: str
    what: str


MEASURED = (
    Cost("manifest", 0.0135, "tar_index 100000 1", "a tar's members, each picture with its JSON, into manifest rows"),
    Cost("concat_grids 2x2", 90.0, "grids 3", "photos of 1.9 megapixels decoded, drawn and written as WebP: a quarter of a grid"),
    Cost("captions", 1.35, "whole_path 300 1", "read, hash, send and store the reply; an instant endpoint"),
    Cost(
        "merged + failed", 0.0183, "merge --records 100000 --rounds 1", "replies parsed and judged, two tables written and proven"
    ),
    Cost("caption_index", 0.0112, "index --records 100000 --rounds 1", "captions.duckdb with its views"),
)
SHARD_CPU_S = 3.2
"""CPU seconds a shard of four pictures: what Dagster costs at most. `definitions 4`."""


@dataclass(frozen=True)
class Requests:
    """Requests to S3 that one shard of 2x2 grids sends: `s3_requests`. (fixed, for each picture more)"""

    stage: str
    reads: tuple[float, float]
    writes: tuple[float, float]


REQUESTS = (
    Requests("shard_plan", (1 / PAGE, 0.0), (0.0, 0.0)),
    Requests("manifest", (4.0, 0.0), (1.0, 0.0)),
    Requests("concat_grids", (4.0, 0.0), (3.0, 0.0)),
    Requests("captions", (20.0, 0.25), (2.5, 0.00875)),
    Requests("recaptions", (22.5, 0.00875), (0.0, 0.0)),
    Requests("merged + failed", (22.5, 0.00875), (2.0, 0.0)),
)
OBJECTS = (7.5, 0.00875)
"""Objects that a shard leaves in the store: (fixed, for each picture more), `s3_requests`."""

RUN_ROWS = 72
SQLITE_KB = {"index.db": 63, "runs.db": 7.5, "a run's own .db": 280}
"""What one finished shard leaves in Dagster's SQLite files: `plan_billion --shards 4000 --keep FOLDER`, sizes of the files."""


@dataclass(frozen=True)
class Plan:
    """What is asked about. picture_kb, grid_kb: mean sizes; rate: pictures a second of one GPU, None where it is not known."""

    pictures: int
    per_shard: int = 10_000
    picture_kb: float = 500.0
    grid_kb: float = 480.0
    rate: float | None = None

    @property
    def shards(self) -> int:
        return math.ceil(self.pictures / self.per_shard)

    def of_shards(self, line: tuple[float, float]) -> float:
        """What is fixed for a shard and grows with its pictures, over all shards."""
        return self.shards * line[0] + self.pictures * line[1]

    @property
    def reads(self) -> float:
        return sum(self.of_shards(stage.reads) for stage in REQUESTS)

    @property
    def writes(self) -> float:
        return sum(self.of_shards(stage.writes) for stage in REQUESTS)

    @property
    def objects(self) -> float:
        return self.of_shards(OBJECTS)

    def cpu_hours(self, cost: Cost) -> float:
        return self.pictures * cost.cpu_ms / 3.6e6

    @property
    def dagster_hours(self) -> float:
        return self.shards * SHARD_CPU_S / 3600

    @property
    def all_cpu_hours(self) -> float:
        return sum(self.cpu_hours(cost) for cost in MEASURED) + self.dagster_hours

    @property
    def network_tb(self) -> float:
        """The source is streamed by manifest and by concat_grids; grids are written once, read once and sent once."""
        return self.pictures * (2 * self.picture_kb + 3 * self.grid_kb / CELLS) / 1e9

    @property
    def gpu_hours(self) -> str:
        return f"{self.pictures / 3600:,.0f} / R" if self.rate is None else f"{self.pictures / 3600 / self.rate:,.0f}"

    @property
    def sqlite_gb(self) -> float:
        return self.shards * sum(SQLITE_KB.values()) / 1e6

    @property
    def least_per_shard(self) -> int:
        """The smallest shard that stays within what Dagster recommends."""
        return math.ceil(self.pictures / MOST_PARTITIONS)


def rows(plans: Sequence[Plan]) -> list[tuple[str, list[str]]]:
    """The table: a name and a value for each plan."""
    table: list[tuple[str, list[str]]] = [
        ("shards", [f"{p.shards:,}" for p in plans]),
        ("pictures a shard for 100,000 shards", [f"{p.least_per_shard:,}" for p in plans]),
        ("objects in the store", [_short(p.objects) for p in plans]),
        ("S3 reads (GET, HEAD, LIST)", [_short(p.reads) for p in plans]),
        ("S3 writes (PUT, DELETE)", [_short(p.writes) for p in plans]),
        ("Dagster: events", [_short(p.shards * RUN_ROWS) for p in plans]),
        ("Dagster: SQLite files, GB", [_short(p.sqlite_gb) for p in plans]),
        ("network, TB", [_short(p.network_tb) for p in plans]),
    ]
    table += [(f"CPU-hours {cost.stage}", [_short(p.cpu_hours(cost)) for p in plans]) for cost in MEASURED]
    table += [
        ("CPU-hours Dagster's own", [_short(p.dagster_hours) for p in plans]),
        ("CPU-hours, all", [_short(p.all_cpu_hours) for p in plans]),
        ("GPU-hours", [p.gpu_hours for p in plans]),
    ]
    return table


def _short(value: float) -> str:
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= least:
            return f"{value / (1e3 if unit == 'k' else least):,.3g} {unit}"
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def print_tables(plans: Sequence[Plan]) -> None:
    """Markdown, as it stands in docs/scaling.md."""
    print("| stage | CPU ms a picture | measured by | what it does |\n|---|---|---|---|")
    for cost in MEASURED:
        print(f"| {cost.stage} | {cost.cpu_ms:.3g} | `{cost.command}` | {cost.what} |")
    print(
        f"| Dagster's own | {SHARD_CPU_S:.2g} s a shard | `definitions 4` | a run, its steps, checks, events: an upper bound |\n"
    )
    print("| | " + " | ".join(f"{p.pictures:,}" for p in plans) + " |\n|---" + "|---:" * len(plans) + "|")
    for name, values in rows(plans):
        print(f"| {name} | " + " | ".join(values) + " |")


def plot(path: Path, plans: Sequence[Plan]) -> None:
    """Four lines over the number of pictures, both axes logarithmic."""
    import matplotlib
    from matplotlib.figure import Figure

    sizes = [p.pictures for p in plans]
    lines = (
        ("S3 requests", [p.reads + p.writes for p in plans]),
        ("objects in the store", [p.objects for p in plans]),
        ("CPU-hours", [p.all_cpu_hours for p in plans]),
        ("shards", [p.shards for p in plans]),
    )
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "caption_assets", "font.size": 9}):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        for name, values in lines:
            axes.loglog(sizes, values, marker="o", label=name)
        axes.axhline(MOST_PARTITIONS, color="#8a8f98", linestyle="--", linewidth=1)
        axes.annotate("100,000 partitions an asset", (sizes[0], MOST_PARTITIONS * 1.15), color="#4a4f58")
        axes.set_xlabel(f"pictures ({plans[0].per_shard:,} a shard)")
        axes.grid(which="major", color="#e3e6ea")
        axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--per-shard", type=int, default=Plan.per_shard)
    parser.add_argument("--picture-kb", type=float, default=Plan.picture_kb)
    parser.add_argument("--grid-kb", type=float, default=Plan.grid_kb)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    plans = [Plan(size, given.per_shard, given.picture_kb, given.grid_kb, given.rate) for size in SIZES]
    print_tables(plans)
    if given.plot:
        plot(given.plot, plans)


if __name__ == "__main__":
    main()
