"""What loading the definitions costs over Dagster itself, and what Dagster costs per shard.

    python -m caption_assets_tests.benchmarks.definitions [SHARDS]

Import: CPU seconds of a fresh process, medians of 5, with a config of two datasets. Per shard: a project of small shards against
an instant endpoint through `caption-assets run`; the CPU and wall time of more shards over those of one, so that starting is left
out, with reading, grids and the stub in it: an upper bound of what Dagster's steps, checks and events cost.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.project import Project, make_project
from caption_assets_tests.stubs.openai_server import StubServer

QUICK = (10,)


def import_seconds(project: Project, code: str) -> float:
    """CPU seconds of a fresh interpreter that runs `code` in the project's folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], cwd=project.folder, env=project.environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_seconds(folder: Path, url: str, shards: int) -> tuple[float, float]:
    """(wall, CPU) seconds of `caption-assets run` over so many shards of four pictures."""
    project = make_project(folder, url, pictures=4 * shards, shard_size=4)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    project.command("run")
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    shards = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as name, StubServer(answers="instant") as stub:
        folder = Path(name)
        project = make_project(folder / "import", stub.url, pictures=1)
        project.config["datasets"].append({**project.config["datasets"][0], "name": "scans"})
        project.write()
        rounds = [
            (import_seconds(project, "import dagster"), import_seconds(project, "import caption_assets.definitions"))
            for _ in range(5)
        ]
        plain, ours = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"import dagster {plain:.2f} s, caption_assets.definitions {ours:.2f} s: {ours - plain:.2f} s more (target 0.3)")
        report(Figure("loading the definitions", "CPU s", ours, floor=plain, floor_way="import dagster"))
        report(Figure("loading them, beyond dagster itself", "CPU s", max(0.0, ours - plain), at_most=0.3))
        one, many = run_seconds(folder / "one", stub.url, 1), run_seconds(folder / "many", stub.url, shards + 1)
        wall, cpu = ((b - a) / shards for a, b in zip(one, many, strict=True))
        print(f"per shard: {wall:.2f} s wall, {cpu:.2f} CPU s (target: under 10 s wall); first shard with start {one[0]:.1f} s")
        report(Figure("Dagster per shard of four pictures", "s", wall, at_most=10, note="reading, grids and stub included"))


if __name__ == "__main__":
    main()
