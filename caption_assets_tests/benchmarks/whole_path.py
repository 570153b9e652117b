"""The whole path, 1x1: from tars of about 0.5 MP JPEGs through manifest, hashing, full decode and captions to merged and failed.

`python -m caption_assets_tests.benchmarks.whole_path [pictures] [rounds]`: CPU time a picture with an instant endpoint, by part.
Wanted: at most 7 ms, the full decode (about 3.2) included; CaptionFlow 0.5.7 takes 20.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from PIL import Image

from caption_assets.core.captioning import caption_shard
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.pictures.gridding import build_grids
from caption_assets.core.sources import read_manifest
from caption_assets.core.tables import write_parquet
from caption_assets.engines import open_engine
from caption_assets_tests.benchmarks import collection, shard_run
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import Median

QUICK = (500, 5)
SHARD, SIDES = "shard", (832, 624)

PEERS = {"CaptionFlow 0.5.7": 20}


def main(count: int = 1000, rounds: int = 5) -> None:
    taken: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, collection.server("--answers", "instant") as url:
        settings = collection.config(Path(folder), url, grid={"rows": 1, "cols": 1})
        pictures = list(collection.photos(count, *SIDES))
        collection.write_tar(Path(folder) / "source" / f"{SHARD}.tar", iter(pictures))
        objects, spec, engine = ObjectStore(), settings.datasets[0], open_engine(settings.engine)
        layout = shard_run.layout_of(settings)
        for _ in range(rounds):
            shutil.rmtree(layout.root, ignore_errors=True)
            marks = [time.process_time()]
            entry = collection.entry(spec, SHARD)
            manifest = write_parquet(objects, layout.manifest(SHARD), read_manifest(objects, spec, [entry]))
            marks.append(time.process_time())
            write_parquet(objects, layout.mapping(SHARD), build_grids(objects, layout, spec, SHARD, manifest))
            marks.append(time.process_time())
            caption_shard(collection.job(settings, SHARD), engine)
            marks.append(time.process_time())
            shard_run.merge(settings, SHARD, "run")
            marks.append(time.process_time())
            for part, begun, ended in zip(("manifest", "hash and decode", "captions", "merge"), marks, marks[1:], strict=False):
                taken[part].append(ended - begun)
            taken["whole path"].append(marks[-1] - marks[0])
            begun = time.process_time()
            for data in pictures:
                Image.open(io.BytesIO(data)).load()
            taken["(Pillow: one full decode)"].append(time.process_time() - begun)
        engine.close()
    print(f"{count} pictures of {sum(map(len, pictures)) / count / 1000:.0f} KB, {rounds} rounds")
    print(f"{'CPU ms a picture':30}{'median':>8}")
    each = {part: Median(times) / (count / 1000) for part, times in taken.items()}
    for part, milliseconds in each.items():
        print(f"{part:30}{milliseconds:8.2f}")
    floor = {"floor": each["(Pillow: one full decode)"], "floor_way": "Pillow, one full decode"}
    report(Figure("the whole path, 0.5 MP, 1x1", "CPU ms a picture", each["whole path"], **floor, at_most=7, peers=PEERS))
    for part in ("manifest", "hash and decode", "captions", "merge"):
        report(Figure(f"of it: {part}", "CPU ms a picture", each[part]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
