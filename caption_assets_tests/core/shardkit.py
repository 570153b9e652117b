"""A small collection and everything a shard needs before it can be captioned, for tests of the loop."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image

from caption_assets.config import Config, DatasetConfig, EngineConfig
from caption_assets.core.captioning import CaptionSummary, ShardJob, caption_shard, count_pending
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.pictures.gridding import build_grids
from caption_assets.core.plan.plans import PlanEntry
from caption_assets.core.planning import make_plan
from caption_assets.core.recipes import output_recipes
from caption_assets.core.sources import read_manifest
from caption_assets.core.tables import TableHandle, write_parquet

SMALL_GRID = {"rows": 2, "cols": 2, "cell_size": 32, "gap": 2, "label_font_size": 8}
ONE = {"rows": 1, "cols": 1}


def jpeg(number: int, side: int = 24) -> bytes:
    """A plain picture; every number has bytes of its own."""
    sink = io.BytesIO()
    colour = (number * 53 % 256, number * 101 % 256, number * 7 % 256)
    Image.new("RGB", (side, side), colour).save(sink, "jpeg", comment=str(number).encode())
    return sink.getvalue()


def write_tar(path: Path, pictures: Iterable[tuple[str, bytes]], texts: dict[str, dict[str, Any]] | None = None) -> None:
    """A WebDataset tar: members `{key}.jpg`, each after its `{key}.json` where `texts` has one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for key, data in pictures:
            members = [(f"{key}.jpg", data)]
            if texts and key in texts:
                members.append((f"{key}.json", json.dumps(texts[key]).encode()))
            for name, content in members:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


@dataclass
class Shard:
    """One shard over one tar. `options`: of the dataset; change it and make jobs anew, as an edit of the config would."""

    root: Path
    options: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(
        default_factory=lambda: {"kind": "openai", "model": "stub", "endpoints": ["http://127.0.0.1:9/v1"]}
    )
    key: str = "shard-a"
    objects: ObjectStore = field(default_factory=ObjectStore)
    store: str | None = None
    runs: int = 0

    @property
    def tar(self) -> Path:
        return self.root / "source" / f"{self.key}.tar"

    @property
    def config(self) -> Config:
        base = {
            "name": "photos",
            "source": f"{self.root}/source/",
            "grid": SMALL_GRID,
            "prompts": [{"text": "Describe the picture."}],
        }
        return Config(store=self.store or str(self.root / "store"), engine=self.engine, datasets=[{**base, **self.options}])

    @property
    def spec(self) -> DatasetConfig:
        return self.config.datasets[0]

    @property
    def engine_config(self) -> EngineConfig:
        return self.config.engine_of(self.spec)

    @property
    def layout(self) -> Layout:
        return Layout(self.config.store, "photos")

    @property
    def recipes(self) -> dict[str, str]:
        return output_recipes(self.spec, self.engine_config, None)

    def prepare(self) -> Shard:
        """Manifest and grids, as their assets make them; where there is no tar, of the first shard of what lies there."""
        if self.tar.exists():
            info = self.objects.head(str(self.tar))
            entries: Any = [PlanEntry(self.key, info.uri, "webdataset", 0, None, 0, info.size, info.size, info.etag, 0, None)]
        else:
            entries = make_plan(self.objects, self.layout, self.spec).plan.entries(self.key)
        manifest = write_parquet(self.objects, self.layout.manifest(self.key), read_manifest(self.objects, self.spec, entries))
        stream = build_grids(self.objects, self.layout, self.spec, self.key, manifest)
        write_parquet(self.objects, self.layout.mapping(self.key), stream)
        return self

    def job(self, run_id: str | None = None, root_run_id: str | None = None) -> ShardJob:
        self.runs += run_id is None
        run_id = run_id or f"run-{self.runs}"
        return ShardJob(
            self.objects, self.layout, self.spec, self.engine_config, self.key, self.recipes, None, run_id, root_run_id or run_id,
            self.handle(self.layout.manifest(self.key)), self.handle(self.layout.mapping(self.key)),
        )  # fmt: skip

    def handle(self, uri: str) -> TableHandle:
        from caption_assets.core.tables import table

        return table(self.objects, uri)

    def captions(self, engine: Any, run_id: str | None = None, **options: Any) -> CaptionSummary:
        return caption_shard(self.job(run_id, options.pop("root_run_id", None)), engine, **options)

    def recaptions(self, engine: Any, run_id: str | None = None, **options: Any) -> CaptionSummary:
        return self.captions(engine, run_id, stage="recaptions", **options)

    def pending(self, stage: Any = "captions") -> int:
        job = self.job("none")
        return count_pending(
            self.objects, self.layout, self.spec, self.key, self.recipes, job.manifest, job.mapping, stage
        ).requests

    def replies(self, output: str = "caption") -> list[dict[str, Any]]:
        """All rows of the current recipe's chunks, revoked or not."""
        folder = Path(self.layout.chunks_folder(self.key, output, self.recipes[output]))
        return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]

    def revoked(self) -> list[str]:
        folder = Path(self.layout.revoked_folder(self.key))
        return [r["request_id"] for path in folder.glob("*.parquet") for r in pq.read_table(path).to_pylist()]


def make_shard(root: Path, count: int = 10, texts: dict[str, dict[str, Any]] | None = None, **options: Any) -> Shard:
    """A prepared shard of `count` pictures `p000`, `p001`, …"""
    shard = Shard(root, options)
    write_tar(shard.tar, ((f"p{n:03d}", jpeg(n)) for n in range(count)), texts)
    return shard.prepare()
