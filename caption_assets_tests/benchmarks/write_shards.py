"""The WebDataset export, and write_shards on its own, beside `tar c` of the same bytes; memory; a SIGKILL in the middle.

    python -m caption_assets_tests.benchmarks.write_shards [--samples 20000] [--rounds 5] [--processes 2]

A sample is a picture of 40 to 80 KB, a text and a JSON with everything that merged knows. The export reads the pictures from one
tar; write_shards and tar read three files per sample; all end with their tars synced to disk. tar writes one tar in one process
and computes no checksums.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from caption_assets.config import DatasetConfig
from caption_assets.core.columns import FAILED, merged_columns
from caption_assets.core.exports.exporting import export
from caption_assets.core.exports.job import Options
from caption_assets.core.exports.tarfiles import FilePart, Sample
from caption_assets.core.exports.tarwriting import write_shards
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.planning import make_plan
from caption_assets.core.sources import read_manifest
from caption_assets.core.tables import arrow_schema, write_parquet
from caption_assets_tests.benchmarks.bigshard import caption
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import Median

QUICK = ("--samples", 20_000, "--rounds", 3)
MAXCOUNT = 2000


def make_collection(root: Path, count: int) -> tuple[DatasetConfig, Layout]:
    """A tar of pictures, planned, and merged with captions."""
    spec = DatasetConfig.model_validate({"name": "photos", "source": f"{root}/source/", "prompts": [{"text": "Describe it."}]})
    layout, objects, chance = Layout(f"{root}/store", "photos"), ObjectStore(), random.Random(1)
    noise = chance.randbytes(200_000)
    (root / "source").mkdir()
    with tarfile.open(root / "source" / "part.tar", "w") as tar:
        for number in range(count):
            info = tarfile.TarInfo(f"{number:06d}.jpg")
            info.size, start = chance.randint(40_000, 80_000), chance.randint(0, 100_000)
            tar.addfile(info, io.BytesIO(noise[start : start + info.size]))
    plan = make_plan(objects, layout, spec).plan
    manifest = write_parquet(objects, layout.manifest("part"), read_manifest(objects, spec, plan.entries("part")))
    columns = arrow_schema(merged_columns(["caption"])).with_metadata({"run_id": "r", "dataset_recipe": "d", "data_version": "v"})
    info = {
        "recipe": "r" * 16,
        "model": "Qwen/Qwen2.5-VL-3B-Instruct",
        "revision": "a" * 40,
        "finish_reason": "stop",
        "attempt": 1,
    }
    info |= {"completion_tokens": 50, "run_id": "r" * 36, "captioned_at": 1_800_000_000_000_000}
    for uri in (layout.merged("part"), layout.failed("part")):
        Path(uri).parent.mkdir(parents=True)
    with open(root / "source" / "part.tar", "rb") as tar, pq.ParquetWriter(layout.merged("part"), columns) as writer:
        for batch in manifest.batches(objects):
            rows = []
            for row in batch.to_pylist():
                tar.seek(row["byte_offset"])
                data = tar.read(row["byte_length"])
                shown = {"width": 640, "height": 480, "format": "jpeg", "file_bytes": len(data)}
                shown |= {"sha256": hashlib.sha256(data).hexdigest(), "caption": caption(chance), "caption_info": info}
                rows.append(row | shown)
            writer.write_table(pa.Table.from_pylist(rows, columns))
    pq.write_table(arrow_schema(FAILED).with_metadata(columns.metadata).empty_table(), layout.failed("part"))
    return spec, layout


def samples(folder: str) -> Iterator[Sample]:
    """The extracted samples of an export."""
    for group in sorted(os.listdir(folder)):
        with os.scandir(f"{folder}/{group}") as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
        for key in sorted(name[:-4] for name in sizes if name.endswith(".jpg")):
            names = {extension: f"{key}.{extension}" for extension in ("jpg", "txt", "json")}
            yield Sample(f"{group}/{key}", {e: FilePart(f"{folder}/{group}/{name}", sizes[name]) for e, name in names.items()})


def write(source: str, out: str, processes: int) -> int:
    reports = write_shards(samples(source), out, maxcount=MAXCOUNT, processes=processes, fingerprint="files")
    return sum(report.records for report in reports)


def tar(source: str, out: str) -> None:
    subprocess.run(["tar", "cf", out, "-C", source, "."], check=True)
    handle = os.open(out, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def cpu() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def spent(work: Callable[[], object], out: str) -> tuple[float, float]:
    """Wall and CPU seconds, of child processes, too; without what was there before."""
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    wall, begun = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - wall, cpu() - begun


def keys(folder: str) -> list[str]:
    found = []
    for path in Path(folder).glob("*.tar"):
        with tarfile.open(path) as members:
            found += [name.removesuffix(".jpg") for name in members.getnames() if name.endswith(".jpg")]
    return found


def killed_and_resumed(source: str, out: str, processes: int, after_s: float) -> None:
    """Prints how many samples stood in whole tars after the kill, and whether every sample is there once in the end."""
    shutil.rmtree(out, ignore_errors=True)
    process = subprocess.Popen([*_command(source, out), "--processes", str(processes)], stdout=subprocess.DEVNULL)
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1)
    whole = keys(out)
    begun = time.perf_counter()
    write(source, out, processes)
    once = sorted(keys(out)) == [sample.key for sample in samples(source)]
    left = [path.name for path in Path(out).iterdir() if path.name.startswith(".caption")]
    print(
        f"killed after {after_s:.1f} s with {len(whole)} samples in whole tars; resumed in {time.perf_counter() - begun:.1f} s; "
        f"every sample once: {once}; left behind: {left}"
    )


def largest_process(source: str, out: str, folder: Path, count: int) -> None:
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "part").mkdir(parents=True)
    for name in sorted(os.listdir(f"{source}/{os.listdir(source)[0]}"))[: 3 * count]:
        os.symlink(f"{source}/{os.listdir(source)[0]}/{name}", folder / "part" / name)
    done = subprocess.run(_command(str(folder), out), capture_output=True, text=True, check=True)
    written, megabytes = done.stdout.split()
    print(f"{written} samples: largest process {megabytes} MB")


def _command(source: str, out: str) -> list[str]:
    return [sys.executable, "-m", "caption_assets_tests.benchmarks.write_shards", "--source", source, "--out", out]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--source", help=argparse.SUPPRESS)
    options.add_argument("--out", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.source:
        written = write(given.source, given.out, given.processes)
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        print(written, peak // 1024)
        return
    with tempfile.TemporaryDirectory() as folder:
        spec, layout = make_collection(Path(folder), given.samples)
        files, out, one = f"{folder}/files", f"{folder}/out", f"{folder}/all.tar"
        chosen = Options(processes=given.processes, maxcount=MAXCOUNT)

        def exported() -> None:
            result = export(ObjectStore(), layout, spec, ["part"], "webdataset", out, options=chosen)
            assert (result.records, result.left_out) == (given.samples, 0)

        exported()
        os.makedirs(f"{files}/part")
        for path in sorted(Path(out).glob("*.tar")):
            subprocess.run(["tar", "xf", str(path), "-C", f"{files}/part"], check=True)
        ways: dict[str, Callable[[], object]] = {
            "tar c": lambda: tar(files, one),
            "export": exported,
            "write_shards": lambda: write(files, out, given.processes),
        }
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(given.rounds):
            for name, way in ways.items():
                runs[name].append(spent(way, out))
        size = os.stat(one).st_size
        os.unlink(one)
        middle = {name: [statistics.median(figures) for figures in zip(*found, strict=True)] for name, found in runs.items()}
        print(f"{given.samples} samples, {size / 1e9:.2f} GB, {given.processes} processes, median of {given.rounds}")
        for name, (wall, used) in middle.items():
            print(
                f"{name:13} wall {wall:5.2f} s  cpu {used:5.2f} s  {size / 1e6 / wall:5.0f} MB/s  "
                f"speed {middle['tar c'][0] / wall:.2f} of tar c"
            )
        rates = {name: Median(size / 1e6 / wall for wall, _ in found) for name, found in runs.items()}
        tar_c = {"obvious": rates["tar c"], "obvious_way": "tar c", "at_least": 0.7 * rates["tar c"]}
        for name in ("export", "write_shards"):
            report(Figure(f"WebDataset, {given.samples:,} samples: {name}", "MB/s", rates[name], **tar_c))
        killed_and_resumed(files, out, given.processes, middle["write_shards"][0] / 2)
        for count in (given.samples // 4, given.samples):
            largest_process(files, out, Path(folder) / "few", count)


if __name__ == "__main__":
    main()
