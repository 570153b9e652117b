"""Requests that each stage sends to S3 for one tar, source and store both there: so many a shard, and so many a picture more.

`python -m caption_assets_tests.benchmarks.s3_requests [ROWSxCOLS]`, 2x2 if not said. Counted at a stub of S3 for a shard of 400
pictures and one of 2,000, with an engine in the process; the difference gives the share of a picture. Real shards read tars and
grids in further ranges where a connection ends early, which is not counted.
"""

from __future__ import annotations

import io
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from caption_assets.core.merging import merge_shard
from caption_assets.core.pictures.gridding import build_grids
from caption_assets.core.planning import make_plan
from caption_assets.core.sources import read_manifest
from caption_assets.core.tables import write_parquet
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.core.scripted import Scripted
from caption_assets_tests.core.shardkit import SMALL_GRID, Shard, jpeg
from caption_assets_tests.servers import set_test_keys
from caption_assets_tests.stubs.s3_server import FakeS3

QUICK = ()
FEW, MANY = 400, 2000
STAGES = ("shard_plan", "manifest", "concat_grids", "captions", "recaptions", "merged")
Requests = dict[str, Counter[str]]


def tar_of(pictures: int) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for number in range(pictures):
            content = jpeg(number)
            info = tarfile.TarInfo(f"{number:06d}.jpg")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return sink.getvalue()


def count(pictures: int, rows: int, cols: int) -> tuple[Requests, int]:
    """Requests by stage and kind for one shard, and the objects it leaves in the store."""
    found: Requests = {}
    with tempfile.TemporaryDirectory() as folder, FakeS3({"source/shard-a.tar": tar_of(pictures)}) as s3:
        shard = Shard(Path(folder), store=f"s3://{s3.bucket}/store", objects=s3.store())
        shard.options = {"source": f"s3://{s3.bucket}/source/", "grid": {**SMALL_GRID, "rows": rows, "cols": cols}}

        def stage(name: str) -> None:
            found[name] = Counter(asked.op for asked in s3.log)
            s3.log.clear()

        objects, layout, spec, key = shard.objects, shard.layout, shard.spec, shard.key
        s3.log.clear()
        entries = make_plan(objects, layout, spec).plan.entries(key)
        stage("shard_plan")
        manifest = write_parquet(objects, layout.manifest(key), read_manifest(objects, spec, entries))
        stage("manifest")
        write_parquet(objects, layout.mapping(key), build_grids(objects, layout, spec, key, manifest))
        stage("concat_grids")
        for name in ("captions", "recaptions"):
            (shard.captions if name == "captions" else shard.recaptions)(Scripted())
            stage(name)
        job = shard.job("merge")
        parts = (job.objects, layout, spec, key, job.recipes, job.manifest, job.mapping)
        merged = merge_shard(*parts, Path(folder), run_id="merge")
        objects.put_file(layout.failed(key), merged.failed_path)
        objects.put_file(layout.merged(key), merged.merged_path)
        stage("merged")
        return found, sum(name.startswith("store/photos/") and "/plan/" not in name for name in s3.objects)


def measure(rows: int = 2, cols: int = 2) -> tuple[dict[str, dict[str, tuple[float, float]]], tuple[float, float]]:
    """(fixed, for each picture) by stage and kind of request; the same for the objects of the store."""
    with pytest.MonkeyPatch.context() as patch:
        set_test_keys(patch)
        (few, few_objects), (many, many_objects) = count(FEW, rows, cols), count(MANY, rows, cols)
    lines = {stage: {op: _line(few[stage][op], many[stage][op]) for op in sorted(few[stage] | many[stage])} for stage in STAGES}
    return lines, _line(few_objects, many_objects)


def _line(few: int, many: int) -> tuple[float, float]:
    slope = (many - few) / (MANY - FEW)
    return few - slope * FEW, slope


def main(grid: str = "2x2") -> None:
    lines, objects = measure(*map(int, grid.split("x")))
    print(f"{grid} grids\n{'stage':14}{'request':9}{'a shard':>9}{'+ a picture':>13}{'10,000 pictures':>17}")
    for stage, requests in lines.items():
        for op, (fixed, slope) in requests.items():
            print(f"{stage:14}{op:9}{fixed:9.1f}{slope:13.5f}{fixed + 10_000 * slope:17,.0f}")
    print(f"{'objects left':23}{objects[0]:9.1f}{objects[1]:13.5f}{objects[0] + 10_000 * objects[1]:17,.0f}")
    asked = sum(fixed + 10_000 * slope for requests in lines.values() for fixed, slope in requests.values())
    report(Figure(f"S3 requests for a shard of 10,000 pictures, {grid}, all stages", "", asked))


if __name__ == "__main__":
    main(*sys.argv[1:])
