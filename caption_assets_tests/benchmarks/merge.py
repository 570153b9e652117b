"""The merge of one shard beside a bare DuckDB join-and-write of the same files, CPU time and memory.

    python -m caption_assets_tests.benchmarks.merge [--records 1000000] [--rounds 5] [--cells 4] [--chunk-rows 1000]

The bare join does less: it takes what a reply has under a slot without reading it closely, judges nothing, and proves nothing.
Each way runs in a process of its own, so that its peak memory is its own; imports are not counted, nor is that of pandas, which
pyarrow does with the first array wherever it is installed. --chunk-rows 100 is how replies are stored while they come. `parse
and judge` is the share of the merge that Python spends on the replies' texts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from caption_assets.core.layout import Layout
from caption_assets.core.merge import judging
from caption_assets.core.merging import merge_shard
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.tables import table
from caption_assets_tests.benchmarks.bigshard import RECIPE, SHARD, make_shard, spec
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import Median

QUICK = ("--records", 200_000, "--rounds", 3)
BARE = """
COPY (
    WITH cells AS (
        SELECT *, {text} AS caption FROM (
            SELECT unnest(record_ids) AS record_id, unnest(slots) AS slot, reply, recipe, model, revision, finish_reason, attempt,
                   prompt_tokens, completion_tokens, latency_ms, endpoint, run_id, sent_at
            FROM read_parquet('{chunks}*.parquet')
        )
    ), best AS (
        SELECT * FROM cells
        QUALIFY row_number() OVER (PARTITION BY record_id ORDER BY caption IS NOT NULL DESC, sent_at DESC) = 1
    )
    SELECT m.record_id, m.id, m.uri, b.caption, g.reason AS caption_reason,
           struct_pack(recipe := recipe, model := model, revision := revision, finish_reason := finish_reason, attempt := attempt,
                       prompt_tokens := prompt_tokens, completion_tokens := completion_tokens, latency_ms := latency_ms,
                       endpoint := endpoint, run_id := run_id, captioned_at := sent_at) AS caption_info,
           g.width, g.height, g.format, g.file_bytes, g.sha256, g.grid_id, g.slot, g.duplicate_of, m.source_uri, m.source_index,
           m.record_json
    FROM read_parquet('{manifest}') m JOIN read_parquet('{mapping}') g USING (record_id)
    LEFT JOIN best b ON b.record_id = coalesce(g.duplicate_of, m.record_id)
) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"""


def bare(layout: Layout, cells: int, scratch: Path) -> dict[str, float]:
    text = "reply" if cells == 1 else "json_extract_string(reply, '$.\"' || slot || '\"')"
    connection = duckdb.connect()
    connection.execute(f"SET memory_limit = '2GB'; SET threads = 2; SET temp_directory = '{scratch}'")
    connection.execute(
        BARE.format(
            text=text,
            chunks=layout.chunks_folder(SHARD, "caption", RECIPE),
            manifest=layout.manifest(SHARD),
            mapping=layout.mapping(SHARD),
            out=scratch / "bare.parquet",
        )
    )
    return {}


def ours(layout: Layout, cells: int, scratch: Path) -> dict[str, float]:
    spent = 0.0
    judge = judging.Judging.judge

    def timed(self: Any, *rest: Any) -> Any:
        nonlocal spent
        begun = time.process_time()
        try:
            return judge(self, *rest)
        finally:
            spent += time.process_time() - begun

    judging.Judging.judge = timed  # type: ignore[method-assign]
    objects = ObjectStore()
    manifest, mapping = table(objects, layout.manifest(SHARD)), table(objects, layout.mapping(SHARD))
    merged = merge_shard(objects, layout, spec(cells), SHARD, {"caption": RECIPE}, manifest, mapping, scratch, run_id="run")
    assert not merged.problems and merged.counts["records"] == manifest.rows
    assert merged.counts["failed"] == manifest.rows // 200, merged.reasons
    return {"parse and judge": spent}


def measured(way: str, store: str, cells: int) -> None:
    """One run of one way; its figures as JSON on standard output."""
    with tempfile.TemporaryDirectory(dir=store) as scratch:
        pa.array([0])  # imports pandas, if there is one
        begun, wall = time.process_time(), time.perf_counter()
        figures = {"bare": bare, "ours": ours}[way](Layout(store, "photos"), cells, Path(scratch))
        figures |= {"cpu": time.process_time() - begun, "wall": time.perf_counter() - wall}
    print(json.dumps({**figures, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def compare(records: int, cells: int, chunk_rows: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as store:
        make_shard(Layout(store, "photos"), records, cells, chunk_rows)
        command = [sys.executable, "-m", "caption_assets_tests.benchmarks.merge", "--store", store, "--cells", str(cells)]
        runs: dict[str, list[dict[str, float]]] = {"bare": [], "ours": []}
        for _ in range(rounds):
            for way, found in runs.items():
                done = subprocess.run([*command, "--way", way], capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
                found.append(json.loads(done.stdout))
    middle = {way: {key: Median(run[key] for run in found) for key in found[0]} for way, found in runs.items()}
    print(f"{records} records, {cells} to a request, median of {rounds}")
    for way, figures in middle.items():
        print(f"{way:6}" + "".join(f"  {key} {value:.1f} {'MB' if key == 'rss' else 's'}" for key, value in figures.items()))
    share = middle["ours"]["parse and judge"]
    print(f"CPU ratio {middle['ours']['cpu'] / middle['bare']['cpu']:.2f}, without parse and judge", end=" ")
    print(f"{(middle['ours']['cpu'] - share) / middle['bare']['cpu']:.2f}")
    name, floor = f"merge of {records:,} records, {cells} to a request", middle["bare"]["cpu"]
    report(Figure(name, "CPU s", middle["ours"]["cpu"], floor=floor, floor_way="bare DuckDB join and write", of_floor=1.5))
    report(Figure(f"{name}: memory", "MB", middle["ours"]["rss"], at_most=1500))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--cells", type=int, help="pictures in a grid, 1 for single pictures; else 4, then 1")
    options.add_argument("--chunk-rows", type=int, default=1000, help="replies in a file")
    options.add_argument("--way", help=argparse.SUPPRESS)
    options.add_argument("--store", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.way:
        measured(given.way, given.store, given.cells)
        return
    for cells in [given.cells] if given.cells else [4, 1]:
        compare(given.records, cells, given.chunk_rows, given.rounds)


if __name__ == "__main__":
    main()
