"""The captioning loop against a bare client: CPU time per picture of 60 KB with an instant endpoint, everything durable.

`python -m caption_assets_tests.benchmarks.loop [pictures] [rounds]`. The bare way is an aiohttp client that posts the same bodies
from memory, plus one full decode of each picture. Wanted: at most 1.5 times its CPU time, and 5 times the 58-83 documents
a second that datatrove stores durably.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
from PIL import Image

from caption_assets.core.captioning import caption_shard
from caption_assets.engines import open_engine
from caption_assets.engines.base import ChatRequest
from caption_assets.engines.payload import body_parts
from caption_assets_tests.benchmarks import collection
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import Median, cpu_medians

QUICK = ()
SHARD, SIDES, CONCURRENCY = "shard", (520, 390), 64


DATATROVE = 83
"""Documents a second that its inference runner stores durably, at best."""


def bare(url: str, bodies: list[bytes], pictures: list[bytes]) -> None:
    async def run() -> None:
        left = iter(bodies)

        async def one(http: aiohttp.ClientSession) -> None:
            for body in left:
                async with http.post(f"{url}/chat/completions", data=body, headers={"Content-Type": "application/json"}) as reply:
                    assert (await reply.json())["choices"]

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            await asyncio.gather(*(one(http) for _ in range(CONCURRENCY)))

    asyncio.run(run())
    for data in pictures:
        Image.open(io.BytesIO(data)).load()


def main(count: int = 1000, rounds: int = 5) -> None:
    pictures = list(collection.photos(count, *SIDES))
    with tempfile.TemporaryDirectory() as folder, collection.server("--answers", "instant") as url:
        settings = collection.config(Path(folder), url, grid={"rows": 1, "cols": 1})
        collection.write_tar(Path(folder) / "source" / f"{SHARD}.tar", iter(pictures))
        collection.prepare(settings, SHARD)
        job, engine = collection.job(settings, SHARD), open_engine(settings.engine)
        sampling, text = job.spec.sampling.model_dump(), job.spec.prompts[0].text
        requests = [ChatRequest("r", text, data, "image/jpeg", (), sampling) for data in pictures]
        bodies = [b"".join(body_parts(request, "stub")) for request in requests]
        speeds: list[float] = []

        def loop() -> None:
            shutil.rmtree(job.layout.all_captions, ignore_errors=True)
            started = time.monotonic()
            summary = caption_shard(job, engine)
            speeds.append(count / (time.monotonic() - started))
            assert summary.figures["requests"] == count

        times = cpu_medians({"bare client and decode": lambda: bare(url, bodies, pictures), "loop": loop}, rounds)
        engine.close()
    floor = times["bare client and decode"]
    print(f"{count} pictures of {sum(map(len, pictures)) / count / 1000:.0f} KB, {rounds} rounds")
    print(f"{'CPU ms a picture':30}{'median':>8}{'ratio':>8}")
    for name, taken in times.items():
        print(f"{name:30}{taken / count:8.3f}{taken / floor:8.2f}")
    print(f"the loop, whole: {Median(speeds):.0f} pictures/s, all durable")
    beside = {"floor": floor / count, "floor_way": "aiohttp client from memory, and one decode"}
    report(Figure("the loop, 60 KB pictures, durable", "CPU ms a picture", times["loop"] / count, **beside, of_floor=1.5))
    speed = Figure("the loop, all durable", "pictures/s", Median(speeds), at_least=5 * DATATROVE, peers={"datatrove": DATATROVE})
    report(speed)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
