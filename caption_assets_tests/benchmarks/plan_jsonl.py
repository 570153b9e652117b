"""Planning a JSONL catalog of 2 GB: time and memory beside numpy counting its newlines, and beside a loop over its lines.

`python -m caption_assets_tests.benchmarks.plan_jsonl [megabytes] [rounds]`. Wanted: at most 2 times numpy's time, under 300 MB.
Each run is a process of its own, so that its memory is its own; times are CPU seconds of the work alone.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import Median

QUICK = (500, 3)
LINE = b'{"id": %012d, "uri": "images/%012d.jpg", "caption": "' + b"words and more words " * 40 + b'"}\n'
WAYS = ("lines", "numpy", "ours")


def make(path: Path, megabytes: int) -> int:
    lines = megabytes * 1_000_000 // len(LINE % (0, 0))
    with open(path, "wb") as file:
        for first in range(0, lines, 1000):
            file.write(b"".join(LINE % (n, n) for n in range(first, min(first + 1000, lines))))
    return lines


def by_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def by_numpy(path: Path) -> int:
    count = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 20):
            count += int(np.count_nonzero(np.frombuffer(block, np.uint8) == 10))
    return count


def ours(path: Path) -> int:
    from caption_assets.config import DatasetConfig, PromptConfig
    from caption_assets.core.layout import Layout
    from caption_assets.core.objectstore import ObjectStore
    from caption_assets.core.planning import make_plan

    spec = DatasetConfig(name="d", source=[str(path)], shard_size=100_000, prompts=[PromptConfig(text="x")])
    with tempfile.TemporaryDirectory() as store:
        plan = make_plan(ObjectStore(), Layout(store, "d"), spec).plan
        return sum(plan.records(shard) or 0 for shard in plan.shards)


def run(way: str, path: Path) -> None:
    """One measurement: lines, CPU seconds, peak megabytes."""
    ways: dict[str, Callable[[Path], int]] = {"lines": by_lines, "numpy": by_numpy, "ours": ours}
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as small:  # imports and first calls are no planning
        small.write(LINE % (0, 0))
        small.flush()
        ways[way](Path(small.name))
    before = time.process_time()
    lines = ways[way](path)
    seconds = time.process_time() - before
    print(lines, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main(megabytes: int = 2000, rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalog.jsonl"
        expected = make(path, megabytes)
        results: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way in WAYS:
                command = [sys.executable, "-m", "caption_assets_tests.benchmarks.plan_jsonl", "--run", way, str(path)]
                lines, seconds, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                assert int(lines) == expected, (way, lines, expected)
                results[way].append((float(seconds), float(peak)))
    floor = statistics.median(seconds for seconds, _ in results["numpy"])
    print(f"{megabytes} MB, {expected} lines, medians of {rounds}")
    for way, figures in results.items():
        seconds = statistics.median(s for s, _ in figures)
        print(f"{way:8} {seconds:7.2f} CPU s   of numpy {seconds / floor:5.2f}   peak {max(p for _, p in figures):6.0f} MB")
    taken = {way: Median(seconds for seconds, _ in figures) for way, figures in results.items()}
    beside = {"floor": floor, "floor_way": "numpy counts its newlines", "of_floor": 2.0}
    report(Figure(f"planning a catalog of {megabytes} MB", "CPU s", taken["ours"], taken["lines"], "a loop over lines", **beside))
    report(Figure(f"planning a catalog of {megabytes} MB: peak memory", "MB", max(p for _, p in results["ours"]), at_most=300))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], Path(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))
