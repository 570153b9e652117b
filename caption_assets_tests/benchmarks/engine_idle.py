"""How long the engine waits for us: `caption-assets run` over shards of pictures, on an endpoint of a fixed speed.

`python -m caption_assets_tests.benchmarks.engine_idle [shards] [pictures] [pictures/s]`, 20 shards of 1,000 at 100/s if not said,
with everything that a user's run does: two worker processes, Dagster's runs, manifest, hashing, full decode, captions, canaries
and merge.

The endpoint works on one request after the other, each for 1/rate seconds. It is idle while it has none, between its first and
its last request for a record; the steady part leaves out the first and the last tenth of the requests. Wanted: at most 5 %.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import orjson

from caption_assets_tests.benchmarks import collection
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.project import Project

QUICK = (6, 1000)


def gaps(log: Path, rate: float) -> tuple[list[tuple[float, float]], list[float]]:
    """When the endpoint had nothing to do: (from, seconds) each; and when its requests for records came, in order."""
    asked = sorted((entry["at"], entry["canary"]) for entry in map(orjson.loads, log.read_bytes().splitlines()))
    real = [at for at, canary in asked if not canary]
    free, found = real[0], []
    for at, _ in asked:
        if real[0] <= at <= real[-1]:
            if at > free:
                found.append((free, at - free))
            free = max(free, at) + 1 / rate
    return found, real


def idle(found: list[tuple[float, float]], begun: float, ended: float) -> float:
    """The idle share of that time."""
    return sum(max(0.0, min(at + seconds, ended) - max(at, begun)) for at, seconds in found) / (ended - begun)


def main(shards: int = 20, pictures: int = 1000, rate: int = 100) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, log = Path(folder), Path(folder) / "asked.jsonl"
        for number in range(shards):
            path = root / "source" / f"shard-{number:02d}.tar"
            collection.write_tar(path, collection.photos(pictures, 520, 390, distinct=5), f"{number:02d}-")
        with collection.server("--answers", "instant", "--rate", str(rate), "--log", str(log)) as url:
            dataset = {"name": "photos", "source": "./source/", "prompts": [{"text": "Describe the picture in one sentence."}]}
            engine = {"kind": "openai", "model": "stub", "endpoints": [url]}
            project = Project(root, {"store": "./store", "engine": engine, "datasets": [dataset]})
            project.write(grid={"rows": 1, "cols": 1})
            began, used = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
            project.command("run", timeout_s=300 + 5 * shards * pictures / rate)
            ended, after = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
        found, real = gaps(log, rate)
    assert len(real) == shards * pictures, f"{len(real)} requests"
    whole = idle(found, real[0], real[-1])
    steady = idle(found, real[len(real) // 10], real[-len(real) // 10])
    cpu = (after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime) * 1000 / len(real)
    print(f"{shards} shards of {pictures} pictures at {rate}/s: {ended - began:.1f} s; {len(real) / rate:.1f} s of requests;")
    print(f"{real[0] - began:.1f} s before the first request, {ended - real[-1]:.1f} s after the last")
    print(f"engine idle   {whole:8.1%}, in the steady part {steady:.1%}")
    print(f"CPU           {cpu:8.2f} ms a picture, starting included")
    longest = sorted(found, key=lambda gap: -gap[1])[:8]
    print("longest gaps  " + ", ".join(f"{seconds:.2f} s after {at - real[0]:.0f} s" for at, seconds in longest))
    report(Figure(f"engine idle, {shards} shards at {rate} pictures/s", "%", 100 * whole, at_most=5))
    report(Figure("engine idle, steady part", "%", 100 * steady, at_most=5))
    report(Figure("caption-assets run, 0.2 MP, 1x1", "CPU ms a picture", cpu, note="starting, Dagster and workers included"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
