"""How far the time left, as told, is from the time that it then took, on an engine of a steady rate.

`python -m caption_assets_tests.benchmarks.eta [pictures a shard] [shards] [pictures a second] [--lines]`: one run over shards of
which the last is a third as long, two at a time. Looked at are the lines that `caption-assets run` prints (here every second),
what `status --watch` prints, and the observations of each shard in Dagster. Wanted: within 10 % from 5 % of the pictures on.
Printed are the errors by how much was done, in percent of the true time left and in seconds, which are few near the end.
"""

from __future__ import annotations

import itertools
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import dagster as dg

from caption_assets_tests.benchmarks import collection
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.project import Project

PARTS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
RUN = "import caption_assets.commands.telling as t; t.SAY_EVERY_S = 1; from caption_assets.cli import main; main(['run'])"
QUICK = (800, 4, 20)
UNITS = {"s": 1, "min": 60, "h": 3600}
Said = list[tuple[float, float]]
"""(when, seconds left as told)"""


def project(folder: Path, url: str, pictures: int, shards: int) -> Project:
    for number in range(shards):
        count = pictures if number < shards - 1 else pictures // 3
        collection.write_tar(folder / "source" / f"s{number:02d}.tar", collection.tiny(count, number * pictures))
    grid = {"rows": 2, "cols": 2, "cell_size": 32, "gap": 2, "label_font_size": 8}
    dataset = {"name": "photos", "source": "./source/", "grid": grid, "prompts": [{"text": "Describe the picture."}]}
    engine = {"kind": "openai", "model": "stub", "endpoints": [url], "concurrency": 16}
    made = Project(folder, {"store": "./store", "engine": engine, "datasets": [dataset]})
    made.write(filters={"duplicate_captions": False})
    made.command("init")
    return made


class Lines:
    """What a process prints, each line with its time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, list[tuple[float, str]]()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.time(), line.rstrip()))

    def left(self, pattern: str) -> Said:
        """What lines of this kind tell."""
        found = ((at, re.search(pattern + r".*about ([\d.]+) (\w+) left", line)) for at, line in self.lines)
        return [(at, float(match[1]) * UNITS[match[2]]) for at, match in found if match]


def observed(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """(seconds left as told, seconds that it took) of each observation of a shard: of the one that the engine answers first, and
    of the one that gets what is left of it."""
    found: dict[str, list[tuple[float, float]]] = {"first in line": [], "second in line": []}
    with dg.DagsterInstance.from_config(str(folder / ".dagster_home")) as instance:
        key = dg.AssetKey(["photos", "captions"])
        ends = {r.partition_key: r.timestamp for r in instance.fetch_materializations(key, limit=1000).records}
        for record in instance.fetch_observations(key, limit=1000).records:
            event, shard = record.asset_observation, record.partition_key
            if (
                event
                and "eta_s" in event.metadata
                and 20 * event.metadata["records_so_far"].value >= event.metadata["records_to_ask"].value
            ):
                first = min(name for name, end in ends.items() if end >= record.timestamp)
                told = float(event.metadata["eta_s"].value), ends[shard] - record.timestamp
                found["first in line" if shard == first else "second in line"].append(told)
    return found


def main(pictures: int = 1200, shards: int = 5, rate: float = 100.0, lines: bool = False) -> None:
    with tempfile.TemporaryDirectory() as name, collection.server("--answers", "instant", "--rate", f"{rate:g}") as url:
        made = project(Path(name), url, pictures, shards)
        run = Lines(_started(made, "-c", RUN))
        watch = Lines(_started(made, "-m", "caption_assets.cli", "status", "--watch"))
        code = run.process.wait()
        run.thread.join()
        watch.process.terminate()
        watch.process.wait()
        if code:
            raise SystemExit("\n".join(line for _, line in run.lines))
        shown(pictures * (shards - 1) + pictures // 3, run, watch, observed(Path(name)), lines)


def _started(made: Project, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, cwd=made.folder, env=made.environment, text=True, stdout=subprocess.PIPE)


def shown(pictures: int, run: Lines, watch: Lines, shards: dict[str, list[tuple[float, float]]], lines: bool) -> None:
    begin, end = run.lines[0][0], next(at for at, line in reversed(run.lines) if line.startswith("["))
    for at, line in sorted([*run.lines, *watch.lines]) if lines else []:
        print(f"{at - begin:6.1f} s, truly {end - at:6.1f} s left: {line}")
    counts = [(at, int(m[1].replace(",", ""))) for at, line in run.lines if (m := re.match(r"photos: ([\d,]+) of", line))]
    asked = end - counts[0][0]
    print(f"{pictures:,} pictures in {asked:.0f} s, {pictures / asked:.0f} a second, after {counts[0][0] - begin:.0f} s of start")
    print(f"{'pictures done':16}{'lines of run':>30}{'status --watch':>30}")
    told = {"lines of run": run.left("answers"), "status --watch": watch.left("photos:")}
    marks = {share: next((at for at, done in counts if done >= share * pictures), end) for share in PARTS}
    for part in itertools.pairwise(PARTS):
        cells = [_errors(_pairs(said, end, *(marks[share] for share in part))) for said in told.values()]
        print(f"{part[0]:4.0%} to {part[1]:4.0%}    {cells[0]:>30}{cells[1]:>30}")
    for line, said in shards.items():
        print(f"observations of the shard that is {line}: {_errors(said)}")
    for name, pairs in told.items():
        errors = [abs(left / took - 1) * 100 for left, took in _pairs(pairs, end, marks[PARTS[0]], marks[PARTS[-2]])]
        what = f"time left in {name}, from {PARTS[0]:.0%} to {PARTS[-2]:.0%} of the pictures"
        report(Figure(f"{what}: worst error", "%", max(errors, default=0.0), at_most=10))


def _pairs(said: Said, end: float, since: float, until: float) -> list[tuple[float, float]]:
    """(seconds left as told, seconds that it took) of what was told between two moments."""
    return [(left, end - at) for at, left in said if since <= at < until]


def _errors(pairs: list[tuple[float, float]]) -> str:
    """Median and worst of the errors, in percent of the true time left, and the worst in seconds."""
    errors = [abs(told - took) / took * 100 for told, took in pairs if took > 0]
    if not errors:
        return "-"
    return f"{statistics.median(errors):.0f} %, worst {max(errors):.0f} % {max(abs(told - took) for told, took in pairs):.1f} s"


if __name__ == "__main__":
    numbers = [argument for argument in sys.argv[1:] if argument != "--lines"]
    main(*map(int, numbers[:2]), *map(float, numbers[2:]), lines="--lines" in sys.argv)
