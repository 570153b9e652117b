"""Indexing a tar of 100,000 members (name, offset, size, checksums verified): CPU time beside tarfile's, and beside bare reading.

`python -m caption_assets_tests.benchmarks.tar_index [members] [rounds]`. Wanted: at most 0.25 of tarfile's. `manifest` is the
whole way to manifest rows, each sample's JSON joined to its picture.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from caption_assets.config import DatasetConfig, PromptConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.planning import make_plan
from caption_assets.core.sources import read_manifest
from caption_assets.core.sources.decompression import Stream
from caption_assets.core.sources.tarindex import TarIndex
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import cpu_medians

QUICK = (50_000, 3)


def make(path: Path, members: int) -> None:
    """Samples of a picture of some 2 KB and a JSON of 300 bytes."""
    with tarfile.open(path, "w") as tar:
        for number in range(members // 2):
            for name, content in (
                (f"{number:08d}.jpg", bytes(1500 + number % 1000)),
                (f"{number:08d}.json", b'{"n": 1}'.ljust(300)),
            ):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def main(members: int = 100_000, rounds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source" / "large.tar"
        path.parent.mkdir()
        make(path, members)
        objects, spec = ObjectStore(), DatasetConfig(name="d", source=[str(path)], prompts=[PromptConfig(text="x")])
        plan = make_plan(objects, Layout(f"{folder}/store", "d"), spec).plan

        def obvious() -> int:
            with tarfile.open(path, "r:") as tar:
                return sum(1 for _ in tar)

        def ours() -> int:
            with Stream(objects.open(str(path))) as stream:
                return sum(len(batch) for batch in TarIndex(stream, os.path.getsize(path)).batches())

        def manifest() -> int:
            return sum(batch.num_rows for batch in read_manifest(objects, spec, plan.entries("large")).batches)

        def floor() -> int:
            with open(path, "rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
            return members

        assert obvious() == ours() == members
        medians = cpu_medians({"tarfile": obvious, "ours": ours, "manifest": manifest, "reading": floor}, rounds)
    print(f"{members} members, CPU milliseconds, medians of {rounds}; times tarfile's, times reading")
    for name, taken in medians.items():
        print(f"{name:10} {taken:8.0f} {taken / medians['tarfile']:8.3f} {taken / medians['reading']:8.1f}")
    beside = {"obvious": medians["tarfile"], "obvious_way": "tarfile", "floor": medians["reading"], "floor_way": "bare reading"}
    report(Figure(f"index of a tar of {members:,} members", "CPU ms", medians["ours"], **beside, of_obvious=0.25))
    report(Figure(f"its manifest of {members // 2:,} records", "CPU ms", medians["manifest"], **beside))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
