"""One run over all shards of a collection through core functions alone: manifest, grids, captions, recaptions, merge.

`python -m caption_assets_tests.benchmarks.shard_run SETTINGS.json [--steps]`: goes on where an earlier run stopped, and prints
`merged SHARD` for each. With --steps, captions and recaptions run in a process of their own, as a multiprocess executor does it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from caption_assets.config import Config
from caption_assets.core.captioning import caption_shard
from caption_assets.core.layout import Layout
from caption_assets.core.loop.leases import hold
from caption_assets.core.merging import merge_shard, read_pair
from caption_assets.core.objectstore import ObjectStore
from caption_assets.engines import open_engine
from caption_assets.engines.base import EngineDown
from caption_assets_tests.benchmarks import collection

OBJECTS = ObjectStore()


def shards(settings: Config) -> list[str]:
    return sorted(Path(info.uri).stem for info in OBJECTS.list(settings.datasets[0].source[0]) if info.uri.endswith(".tar"))


def layout_of(settings: Config) -> Layout:
    return Layout(settings.store, settings.datasets[0].name)


def run(path: str, steps: bool) -> None:
    settings = Config.model_validate_json(Path(path).read_text())
    layout, run_id = layout_of(settings), uuid.uuid4().hex
    for shard in shards(settings):
        if read_pair(OBJECTS, layout, shard):
            continue
        with hold(OBJECTS, layout.lease(shard), run_id, wait_s=600):
            if not OBJECTS.exists(layout.mapping(shard)):
                collection.prepare(settings, shard)
        if steps:
            step = subprocess.run([sys.executable, "-m", __spec__.name, path, "--step", shard, run_id], check=False)
            if step.returncode:
                sys.exit(step.returncode)
        else:
            captions(settings, shard, run_id)
        with hold(OBJECTS, layout.lease(shard), run_id, wait_s=600):
            merge(settings, shard, run_id)
        print(f"merged {shard}", flush=True)


def captions(settings: Config, shard: str, run_id: str) -> None:
    """Both stages, tried again while the engine is down, as the retry policy of the assets does it."""
    layout, engine = layout_of(settings), open_engine(settings.engine)
    with hold(OBJECTS, layout.lease(shard), run_id, wait_s=600):
        for attempt in range(4):
            try:
                caption_shard(collection.job(settings, shard, run_id), engine)
                caption_shard(collection.job(settings, shard, run_id), engine, stage="recaptions")
                return
            except EngineDown:
                if attempt == 3:
                    raise


def merge(settings: Config, shard: str, run_id: str) -> None:
    job = collection.job(settings, shard, run_id)
    with tempfile.TemporaryDirectory() as scratch:
        merged = merge_shard(
            OBJECTS, job.layout, job.spec, shard, job.recipes, job.manifest, job.mapping, Path(scratch), run_id=run_id
        )
        if merged.problems:
            raise SystemExit(f"{shard}: {merged.problems}")
        OBJECTS.put_file(job.layout.failed(shard), merged.failed_path)
        OBJECTS.put_file(job.layout.merged(shard), merged.merged_path)


if __name__ == "__main__":
    if sys.argv[2:3] == ["--step"]:
        captions(Config.model_validate_json(Path(sys.argv[1]).read_text()), *sys.argv[3:5])
    else:
        run(sys.argv[1], "--steps" in sys.argv)
