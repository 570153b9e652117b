"""captions.duckdb beside a bare CREATE TABLE AS SELECT of the same parquet, and the time of text searches in it.

    python -m caption_assets_tests.benchmarks.index [--records 1000000] [--shards 10] [--rounds 5]

CPU time of all threads. The bare way makes a table of captions from all merged files at once, in a file of its own.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from caption_assets.core.index import IndexRequest, build_index
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets_tests.benchmarks.bigshard import make_merged, spec
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import Median

QUICK = ("--records", 200_000, "--rounds", 3)
SEARCHES = {
    "contains": "SELECT count(*) FROM captions WHERE contains(caption, 'lighthouse')",
    "ILIKE": "SELECT count(*) FROM captions WHERE caption ILIKE '%greenhouse%'",
    "regexp": r"SELECT count(*) FROM captions WHERE regexp_matches(caption, '(?i)\b(canoe|tram) (leaning|walking)\b')",
}


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--shards", type=int, default=10)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        layout, objects = Layout(folder, "photos"), ObjectStore()
        shards = {f"part-{n:05d}": "version" for n in range(given.shards)}
        for shard in shards:
            make_merged(layout, shard, given.records // given.shards)
        request = IndexRequest(spec(1), shards, [], "run")
        bare, ours, one = [], [], []
        for _ in range(given.rounds):
            Path(f"{folder}/bare.duckdb").unlink(missing_ok=True)
            with duckdb.connect(f"{folder}/bare.duckdb") as connection:
                query = f"CREATE TABLE captions AS SELECT * FROM '{folder}/photos/merged/*.parquet'; CHECKPOINT"
                bare.append(spent(lambda: connection.execute(query)))  # noqa: B023
            Path(layout.index).unlink(missing_ok=True)
            ours.append(spent(lambda: build_index(objects, layout, request)))
            changed = {**shards, "part-00000": "other"}
            make_merged(layout, "part-00000", given.records // given.shards, "other")
            one.append(spent(lambda: build_index(objects, layout, IndexRequest(spec(1), changed, [], "run"))))  # noqa: B023
            make_merged(layout, "part-00000", given.records // given.shards)
        print(f"{given.records} captions in {given.shards} shards, median of {given.rounds}")
        for name, found in (("CREATE TABLE AS", bare), ("caption_index", ours), ("one shard anew", one)):
            cpu, wall = (statistics.median(figures) for figures in zip(*found, strict=True))
            print(f"{name:16} cpu {cpu:.2f} s  wall {wall:.2f} s")
        ratio = statistics.median(o[0] for o in ours) / statistics.median(b[0] for b in bare)
        cpu = {"obvious": Median(b[0] for b in bare), "obvious_way": "CREATE TABLE AS SELECT", "of_obvious": 2}
        report(Figure(f"captions.duckdb of {given.records:,} captions", "CPU s", Median(o[0] for o in ours), **cpu))
        print(f"CPU ratio {ratio:.2f}; {Path(layout.index).stat().st_size >> 20} MB")
        with duckdb.connect(layout.index, read_only=True) as connection:
            for name, query in SEARCHES.items():
                times = [spent(lambda: connection.sql(query).fetchall()) for _ in range(given.rounds)]  # noqa: B023
                cpu, wall = (statistics.median(figures) for figures in zip(*times, strict=True))
                print(f"{name:16} cpu {cpu:.2f} s  wall {wall:.2f} s")
                report(Figure(f"search by {name} in {given.records:,} captions", "s", Median(w for _, w in times), at_most=1))


if __name__ == "__main__":
    main()
