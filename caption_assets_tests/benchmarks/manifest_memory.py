"""Peak memory of planning and of the manifest, for few and for many records in one shard, with 1 KB of record_json each.

`python -m caption_assets_tests.benchmarks.manifest_memory [few] [many]`, 20,000 and 1,000,000 if not said. Each run is a process
of its own that plans the source and writes the manifest. Wanted: at most 1.3 times as much for many as for few, in each format.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.config import DatasetConfig, PromptConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.planning import make_plan
from caption_assets.core.sources import read_manifest
from caption_assets.core.tables import write_parquet
from caption_assets_tests.benchmarks.reporting import Figure, report

QUICK = (20_000, 100_000)
FORMATS = ("jsonl", "webdataset", "parquet", "images")
ROWS = 10_000


def text(number: int) -> str:
    return json.dumps({"id": number, "uri": f"images/{number:09d}.jpg", "caption": (f"{number:x} words " * 120)[:950]})


def make_jsonl(folder: Path, records: int) -> None:
    with open(folder / "catalog.jsonl", "w") as file:
        file.writelines(f"{text(number)}\n" for number in range(records))


def make_webdataset(folder: Path, records: int) -> None:
    """Each sample is a picture of 100 bytes and its JSON."""
    with open(folder / "large.tar", "wb") as file:
        for number in range(records):
            for name, content in ((f"{number:09d}.jpg", bytes(100)), (f"{number:09d}.json", text(number).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                file.write(info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512))
        file.write(bytes(1024))


def make_parquet(folder: Path, records: int) -> None:
    """Row groups of 10,000 rows."""
    writer = None
    for first in range(0, records, ROWS):
        rows = [json.loads(text(number)) for number in range(first, min(first + ROWS, records))]
        table = pa.Table.from_pylist(rows)
        writer = writer or pq.ParquetWriter(folder / "rows.parquet", table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def make_images(folder: Path, records: int) -> None:
    """Empty pictures with JSON beside them, 1,000 to a folder."""
    for number in range(records):
        inner = folder / f"{number // 1000:06d}"
        inner.mkdir(exist_ok=True)
        (inner / f"{number:09d}.jpg").touch()
        (inner / f"{number:09d}.json").write_text(text(number))


def build(kind: str, folder: Path, records: int) -> None:
    """Plans and writes the manifest; prints what it took."""
    objects, layout = ObjectStore(), Layout(str(folder / "store"), "d")
    spec = DatasetConfig(
        name="d", source=[f"{folder}/source/"], format=kind, shard_size=records, prompts=[PromptConfig(text="x")]
    )  # type: ignore[arg-type]
    begun, cpu = time.perf_counter(), time.process_time()
    plan = make_plan(objects, layout, spec).plan
    (shard,) = plan.shards
    rows = write_parquet(objects, layout.manifest(shard), read_manifest(objects, spec, plan.entries(shard))).rows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"rows": rows, "mb": peak, "seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}))


def main(few: int = 20_000, many: int = 1_000_000) -> None:
    print(f"{'format':12}{'records':>10}{'peak MB':>9}{'of few':>8}{'seconds':>9}{'CPU us/record':>15}")
    for kind in FORMATS:
        peaks: list[int] = []
        for records in (few, many):
            with tempfile.TemporaryDirectory() as folder:
                source = Path(folder) / "source"
                source.mkdir()
                globals()[f"make_{kind}"](source, records)
                command = [sys.executable, "-m", "caption_assets_tests.benchmarks.manifest_memory", kind, folder, str(records)]
                done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            assert done["rows"] == records
            peaks.append(done["mb"])
            us = done["cpu"] / records * 1e6
            print(f"{kind:12}{records:10}{done['mb']:9}{done['mb'] / peaks[0]:8.2f}{done['seconds']:9.1f}{us:15.0f}", flush=True)
        name = f"manifest of {kind}: peak memory of {many:,} records to {few:,}"
        report(Figure(name, "times", peaks[-1] / peaks[0], at_most=1.3, note=f"{peaks[-1]} MB"))


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in FORMATS:
        build(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))
