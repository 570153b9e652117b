"""Tars of photo-like pictures for benchmarks, quickly made: few photos, each written many times with a comment of its own."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from caption_assets.config import Config, DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.owed.shardjob import ShardJob
from caption_assets.core.pictures.gridding import build_grids
from caption_assets.core.plan.plans import PlanEntry
from caption_assets.core.recipes import output_recipes
from caption_assets.core.sources import read_manifest
from caption_assets.core.tables import table, write_parquet
from caption_assets_tests.pictures import photo


def photos(count: int, width: int, height: int, distinct: int = 25) -> Iterator[bytes]:
    """JPEGs that all differ in their bytes."""
    made = [photo(seed, width, height) for seed in range(min(count, distinct))]
    for number in range(count):
        yield _commented(made[number % len(made)], number)


def tiny(count: int, first: int = 0) -> Iterator[bytes]:
    """JPEGs of one colour each, 24 pixels wide."""
    for number in range(first, first + count):
        sink = io.BytesIO()
        Image.new("RGB", (24, 24), (number * 53 % 256, number * 101 % 256, number * 7 % 256)).save(sink, "jpeg")
        yield _commented(sink.getvalue(), number)


def _commented(jpeg: bytes, number: int) -> bytes:
    comment = str(number).encode()
    return jpeg[:2] + b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment + jpeg[2:]


def write_tar(path: Path, pictures: Iterator[bytes], prefix: str = "p") -> None:
    """A WebDataset tar of pictures `{prefix}000000.jpg` and on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for number, data in enumerate(pictures):
            info = tarfile.TarInfo(f"{prefix}{number:06d}.jpg")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def config(root: Path, endpoint: str, **dataset: object) -> Config:
    engine = {"kind": "openai", "model": "stub", "endpoints": [endpoint]}
    base = {"name": "photos", "source": f"{root}/source/", "prompts": [{"text": "Describe the picture in one sentence."}]}
    return Config(store=f"{root}/store", engine=engine, datasets=[{**base, **dataset}])


def entry(spec: DatasetConfig, shard: str) -> PlanEntry:
    """The plan of the shard whose tar is `{shard}.tar`."""
    info = ObjectStore().head(f"{spec.source[0]}{shard}.tar")
    return PlanEntry(shard, info.uri, "webdataset", 0, None, 0, info.size, info.size, info.etag, 0, None)


def prepare(settings: Config, shard: str) -> None:
    """Manifest, then mapping and grids."""
    objects, spec, layout = ObjectStore(), settings.datasets[0], Layout(settings.store, settings.datasets[0].name)
    manifest = write_parquet(objects, layout.manifest(shard), read_manifest(objects, spec, [entry(spec, shard)]))
    write_parquet(objects, layout.mapping(shard), build_grids(objects, layout, spec, shard, manifest))


def job(settings: Config, shard: str, run_id: str = "run") -> ShardJob:
    objects, spec = ObjectStore(), settings.datasets[0]
    layout, engine = Layout(settings.store, spec.name), settings.engine_of(spec)
    handles = [table(objects, uri) for uri in (layout.manifest(shard), layout.mapping(shard))]
    return ShardJob(objects, layout, spec, engine, shard, output_recipes(spec, engine, None), None, run_id, run_id, *handles)


@contextmanager
def server(*arguments: str) -> Iterator[str]:
    """The stub server in a process of its own, so that its CPU time is not ours; gives its address."""
    command = [sys.executable, "-m", "caption_assets_tests.stubs.openai_server", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait()
