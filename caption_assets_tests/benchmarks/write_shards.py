"""write_shards beside `tar c` of the same files, its memory, and what a SIGKILL in the middle leaves.

    python -m caption_assets_tests.benchmarks.write_shards [--samples 20000] [--rounds 5] [--processes 2]

A sample is a picture of 40 to 80 KB, a text and a JSON. Both ways read the same files and end with their tars synced to disk. tar
writes one tar in one process and computes no checksum.
"""

from __future__ import annotations

import argparse
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

from caption_assets.core.exports.tarfiles import FilePart, Sample
from caption_assets.core.exports.tarwriting import write_shards

MAXCOUNT = 2000


def make_files(folder: Path, count: int) -> None:
    chance = random.Random(1)
    noise = chance.randbytes(200_000)
    for number in range(count):
        path = folder / f"{number // 1000:03d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        start, size = chance.randint(0, 100_000), chance.randint(40_000, 80_000)
        path.write_bytes(noise[start : start + size])
        path.with_suffix(".txt").write_bytes(b"a caption of some length " * 8)
        path.with_suffix(".json").write_bytes(b'{"caption": "a caption of some length"}' * 15)


def samples(folder: Path) -> Iterator[Sample]:
    for group in sorted(os.listdir(folder)):
        with os.scandir(f"{folder}/{group}") as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
        for key in sorted(name[:-4] for name in sizes if name.endswith(".jpg")):
            names = {extension: f"{key}.{extension}" for extension in ("jpg", "txt", "json")}
            yield Sample(f"{group}/{key}", {e: FilePart(f"{folder}/{group}/{name}", sizes[name]) for e, name in names.items()})


def write(source: Path, out: Path, processes: int) -> int:
    reports = write_shards(samples(source), str(out), maxcount=MAXCOUNT, processes=processes, fingerprint="files")
    return sum(report.records for report in reports)


def tar(source: Path, out: Path) -> None:
    subprocess.run(["tar", "cf", str(out), "-C", str(source), "."], check=True)
    handle = os.open(out, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def cpu() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds, of child processes, too."""
    wall, begun = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - wall, cpu() - begun


def killed_and_resumed(source: Path, out: Path, processes: int, after_s: float) -> None:
    """Prints how many tars stood whole after the kill, and whether every sample is there once in the end."""
    command = [sys.executable, "-m", "caption_assets_tests.benchmarks.write_shards", "--source", str(source), "--out", str(out)]
    process = subprocess.Popen([*command, "--processes", str(processes)], stdout=subprocess.DEVNULL)
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1)
    whole = keys(out)
    wall, _ = spent(lambda: write(source, out, processes))
    found = keys(out)
    wanted = [sample.key for sample in samples(source)]
    print(
        f"killed after {after_s:.1f} s: {len(whole)} samples in whole tars; resumed in {wall:.1f} s; "
        f"every sample once: {sorted(found) == wanted}; left behind: {sum(1 for p in out.iterdir() if p.name[0] == '.') - 1}"
    )


def keys(folder: Path) -> list[str]:
    found = []
    for path in folder.glob("*.tar"):
        with tarfile.open(path) as members:
            found += [name.removesuffix(".jpg") for name in members.getnames() if name.endswith(".jpg")]
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.source:
        print(write(given.source, given.out, given.processes), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "source", Path(folder) / "out"
        make_files(source, given.samples)
        runs: dict[str, list[tuple[float, float]]] = {"tar c": [], "write_shards": []}
        for _ in range(given.rounds):
            runs["tar c"].append(spent(lambda: tar(source, Path(folder) / "all.tar")))
            shutil.rmtree(out, ignore_errors=True)
            runs["write_shards"].append(spent(lambda: write(source, out, given.processes)))
        size = (Path(folder) / "all.tar").stat().st_size
        (Path(folder) / "all.tar").unlink()
        middle = {name: [statistics.median(figures) for figures in zip(*found, strict=True)] for name, found in runs.items()}
        print(f"{given.samples} samples, {size / 1e9:.2f} GB, {given.processes} processes, median of {given.rounds}")
        for name, (wall, used) in middle.items():
            print(f"{name:13} wall {wall:5.2f} s  cpu {used:5.2f} s  {size / 1e6 / wall:6.0f} MB/s")
        print(f"speed of write_shards: {middle['tar c'][0] / middle['write_shards'][0]:.2f} of tar c")
        shutil.rmtree(out)
        killed_and_resumed(source, out, given.processes, middle["write_shards"][0] / 2)
        for count in (given.samples // 4, given.samples):
            few = Path(folder) / "few"
            shutil.rmtree(few, ignore_errors=True)
            few.mkdir()
            for group in sorted(source.iterdir())[: -(-count // 1000)]:
                (few / group.name).symlink_to(group)
            command = [sys.executable, "-m", "caption_assets_tests.benchmarks.write_shards", "--source", str(few)]
            shutil.rmtree(out, ignore_errors=True)
            done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=True)
            print(f"{count} samples: largest process {done.stdout.split()[1]} MB")


if __name__ == "__main__":
    main()
