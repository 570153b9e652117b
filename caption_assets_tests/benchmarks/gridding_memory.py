"""Peak memory of concat_grids (hash, full decode, dedup, mapping; grids where a grid is asked for) for few and for many records.

`python -m caption_assets_tests.benchmarks.gridding_memory [few] [many] [ROWSxCOLS]`, 20,000 and 1,000,000 in 1x1 if not said.
Each run is a process of its own over a tar of tiny PNGs, all different, whose manifest rows carry 1 KB of record_json; cells are
of 64 pixels, so that drawing does not hide what is measured. Wanted: at most 1.3 times.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caption_assets.config import DatasetConfig
from caption_assets.core.columns import MANIFEST
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.pictures.gridding import build_grids
from caption_assets.core.tables import RecordStream, arrow_schema, batches_of, table, write_parquet
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.pictures import noise, save

QUICK = (20_000, 200_000)
SHARD = "shard-00000"
CELLS = {"cell_size": 64, "gap": 2, "label_font_size": 8, "quality": 50}


def make(folder: Path, records: int) -> None:
    """A tar of `records` pictures that differ in a number behind their end, and its manifest."""
    tar, png = folder / "in.tar", save(noise(1, 16, 16), "png")
    info = tarfile.TarInfo("picture.png")
    info.size = len(png) + 8
    head, tail = info.tobuf(), bytes(-info.size % 512)
    with open(tar, "wb") as file:
        for number in range(records):
            file.write(head + png + number.to_bytes(8, "big") + tail)
        file.write(bytes(1024))
    pitch = 512 + info.size + len(tail)
    schema = arrow_schema(MANIFEST)

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(records):
            yield {
                "record_id": f"in.tar#{number:09d}.png",
                "id": str(number),
                "uri": f"{tar}#{number:09d}.png",
                "source_uri": str(tar),
                "source_index": number + 1,
                "record_json": json.dumps({"n": number, "text": f"{number:x} " * 140})[:1000],
                "byte_offset": number * pitch + 512,
                "byte_length": info.size,
            }

    write_parquet(ObjectStore(), Layout(str(folder), "photos").manifest(SHARD), RecordStream(schema, batches_of(rows(), schema)))


def build(folder: Path, rows: int, cols: int) -> None:
    objects, layout = ObjectStore(), Layout(str(folder), "photos")
    prompts, grid = [{"text": "Describe it."}], {"rows": rows, "cols": cols, **CELLS}
    spec = DatasetConfig(name="photos", source=[str(folder)], prompts=prompts, grid=grid)
    begun, cpu = time.perf_counter(), time.process_time()
    stream = build_grids(objects, layout, spec, SHARD, table(objects, layout.manifest(SHARD)))
    mapped = write_parquet(objects, layout.mapping(SHARD), stream).rows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"rows": mapped, "mb": peak, "seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}))


def main(few: int = 20_000, many: int = 1_000_000, grid: str = "1x1") -> None:
    print(f"{grid} grids\n{'records':>10}{'peak MB':>9}{'of few':>8}{'seconds':>9}{'CPU us/record':>15}")
    peaks: list[int] = []
    for records in (few, many):
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), records)
            command = [sys.executable, "-m", "caption_assets_tests.benchmarks.gridding_memory", folder, grid]
            done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert done["rows"] == records
        peaks.append(done["mb"])
        print(
            f"{records:10}{done['mb']:9}{done['mb'] / peaks[0]:8.2f}{done['seconds']:9.1f}{done['cpu'] / records * 1e6:15.0f}",
            flush=True,
        )
    name = f"concat_grids in {grid}: peak memory of {many:,} records to {few:,}"
    report(Figure(name, "times", peaks[-1] / peaks[0], at_most=1.3, note=f"{peaks[-1]} MB"))


if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].isdigit():
        build(Path(sys.argv[1]), *map(int, sys.argv[2].split("x")))
    else:
        main(*map(int, sys.argv[1:3]), *sys.argv[3:4])
