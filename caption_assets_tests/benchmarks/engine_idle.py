"""How long the engine waits for us: shards of pictures on an endpoint of a fixed speed, two shards at a time.

`python -m caption_assets_tests.benchmarks.engine_idle [shards] [pictures] [pictures/s]`, 20 shards of 1,000 at 100/s if not said:
manifest, hashing, captions and merge of each. Idle is the part of the whole time in which the endpoint could have answered more.
Wanted: at most 5 %.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from caption_assets.core.captioning import caption_shard
from caption_assets.engines import open_engine
from caption_assets_tests.benchmarks import collection, shard_run


def main(shards: int = 20, pictures: int = 1000, rate: int = 100) -> None:
    with tempfile.TemporaryDirectory() as folder, collection.server("--answers", "instant", "--rate", str(rate)) as url:
        settings = collection.config(Path(folder), url, grid={"rows": 1, "cols": 1})
        for number in range(shards):
            path = Path(folder) / "source" / f"shard-{number:02d}.tar"
            collection.write_tar(path, collection.photos(pictures, 520, 390, distinct=5), f"{number:02d}-")
        engine, waits = open_engine(settings.engine), {"feed": 0.0, "engine": 0.0, "store": 0.0}

        def one(shard: str) -> None:
            collection.prepare(settings, shard)
            figures = caption_shard(collection.job(settings, shard), engine).figures
            for part in waits:
                waits[part] += figures[f"{part}_wait_s"]
            shard_run.merge(settings, shard, "run")

        started, used = time.monotonic(), time.process_time()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, shard_run.shards(settings)))
        took, used = time.monotonic() - started, time.process_time() - used
        engine.close()
    least = shards * pictures / rate
    print(f"{shards} shards of {pictures} pictures at {rate}/s: {took:.1f} s, at least {least:.1f} s")
    print(f"engine idle   {(took - least) / took:8.1%}")
    print(f"CPU           {used * 1000 / shards / pictures:8.2f} ms a picture")
    print("waited for    " + ", ".join(f"{part} {seconds:.1f} s" for part, seconds in waits.items()) + " (both shards together)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
