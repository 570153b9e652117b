"""A billion records in 100,000 shards on one machine: the plan made and resumed, and Dagster's records at 99 % done.

`python -m caption_assets_tests.benchmarks.plan_billion [--shards 100000] [--postgres] [--keep FOLDER]`. Each step is a process of
its own: wall and CPU seconds, and its peak memory. A folder that --keep left is gone on with, so that the long copying of records
is done once.

Catalogs: 1,000 JSONL files of a million lines in a store that gives the same lines for all, planned until the planner is killed
at 99 %, then to the end. Tars: real names, one a shard, each said to hold 10,000 records, which planning does not count; 99 % of
the shards are done in Dagster's records (benchmarks.manyshards), then the commands are asked what is left.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from caption_assets.config import DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectInfo, ObjectStore
from caption_assets.core.plan import generations
from caption_assets.core.plan.plans import Generation, Plan, PlannedShard
from caption_assets.core.planning import load_plan, make_plan
from caption_assets.core.storage.objects import ByteStream, Objects
from caption_assets_tests.benchmarks import manyshards
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.project import Project

LINE = b'{"uri":"a.jpg"}\n'
QUICK = ("--shards", 3000)
SHARD_SIZE = 10_000
CATALOG_SHARDS = 100
REGISTERED = 40_000


class Catalogs:
    """JSONL catalogs of a million equal lines each, at s3://catalogs/; killed: the planner dies when it opens this one."""

    def __init__(self, count: int, killed: int | None) -> None:
        self._count, self._killed = count, killed
        self._block = LINE * 65_536

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        size = len(LINE) * SHARD_SIZE * CATALOG_SHARDS
        names = (f"s3://catalogs/{number:05d}.jsonl" for number in range(self._count))
        return (ObjectInfo(name, size, "etag", 1.7e9) for name in names if name.startswith(prefix))

    def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        if self._killed is not None and uri == f"s3://catalogs/{self._killed:05d}.jsonl":
            raise KeyboardInterrupt
        return Repeated(self._block, len(LINE) * SHARD_SIZE * CATALOG_SHARDS)  # type: ignore[return-value]


class Repeated(ByteStream):
    def __init__(self, block: bytes, size: int) -> None:
        self._block, self._left, self._at = memoryview(block), size, 0

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer).cast("B")
        count = min(len(into), len(self._block) - self._at, self._left)
        into[:count] = self._block[self._at : self._at + count]
        self._at = (self._at + count) % len(self._block)
        self._left -= count
        return count


class CatalogStore(ObjectStore):
    def __init__(self, catalogs: Catalogs) -> None:
        super().__init__()
        self._catalogs = catalogs

    def of(self, uri: str) -> Objects:
        return self._catalogs if uri.startswith("s3://") else super().of(uri)  # type: ignore[return-value]


def plan_catalogs(folder: Path, shards: int, killed: bool) -> dict[str, Any]:
    """Plans the catalogs, killed at 99 % or from there to the end; a generation is closed each second, not every five minutes."""
    generations.GENERATION_S = 1.0
    count = shards // CATALOG_SHARDS
    catalogs = Catalogs(count, int(count * 0.99) if killed else None)
    layout = Layout(str(folder / "catalogs"), "d")
    spec = DatasetConfig(name="d", source=["s3://catalogs/"], format="jsonl", shard_size=SHARD_SIZE, prompts=[{"text": "x"}])
    try:
        make_plan(CatalogStore(catalogs), layout, spec)
    except KeyboardInterrupt:
        assert killed
    plan = load_plan(ObjectStore(), layout)
    records = sum(plan.records(shard) or 0 for shard in plan.shards)
    return {"shards": len(plan.shards), "records": records, "generations": len(plan.generations)}


def register(folder: Path, shards: int) -> dict[str, Any]:
    """Keys made into partitions of a new instance, as planning does."""
    from caption_assets.assets.plan import register_shards
    from caption_assets.configfile import load_config
    from caption_assets.instance import open_instance
    from caption_assets.partitions import Dataset

    config = load_config(folder / "caption_assets.yaml")
    ds = Dataset(config, config.datasets[0])
    count = min(REGISTERED, shards)
    planned = tuple(PlannedShard(manyshards.shard_name(n), 0, n, 1, None, ()) for n in range(count))
    plan = Plan(ObjectStore(), (Generation(0, "", "webdataset", planned, {}),))
    with tempfile.TemporaryDirectory() as home, open_instance(Path(home)) as instance:
        begun, cpu = time.perf_counter(), time.process_time()
        register_shards(instance, ds, plan)
        taken = {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
        assert len(instance.get_dynamic_partitions(ds.partitions_name)) == count
    return {**taken, "keys": count}


def tick(folder: Path, shards: int) -> dict[str, Any]:
    """The sensor's look at the source."""
    import dagster as dg

    from caption_assets.configfile import load_config
    from caption_assets.partitions import Dataset
    from caption_assets.resources.store import StoreResource
    from caption_assets.sensors import new_data

    config = load_config(folder / "caption_assets.yaml")
    sensor = new_data(Dataset(config, config.datasets[0]))
    resources = {"store": StoreResource(s3_settings="{}")}
    with (
        manyshards.instance_of(Project(folder, {})) as instance,
        dg.build_sensor_context(instance=instance, resources=resources) as context,
    ):
        begun, cpu = time.perf_counter(), time.process_time()
        result = sensor.evaluate_tick(context)
        taken = {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
    return {**taken, "asks": len(result.run_requests or []), "says": result.skip_message}


def lose(folder: Path, shards: int) -> dict[str, Any]:
    """Takes a hundredth of the finished shards out of Dagster's records."""
    from caption_assets.materializations import forget_materializations
    from caption_assets.partitions import SHARD_ASSETS

    lost = [manyshards.shard_name(number) for number in range(1, 1 + max(1, shards // 100))]
    with manyshards.instance_of(Project(folder, {})) as instance:
        for asset in SHARD_ASSETS:
            forget_materializations(instance, _key(asset), lost)
    return {"shards": len(lost)}


def add_tars(folder: Path, shards: int) -> dict[str, Any]:
    """A hundredth more tars in the source."""
    manyshards.make_tars(folder, shards, shards + max(1, shards // 100))
    return {}


def _key(asset: str) -> Any:
    import dagster as dg

    return dg.AssetKey([manyshards.DATASET, asset])


def seed(folder: Path, shards: int) -> dict[str, Any]:
    done = shards - max(1, shards // 100)
    manyshards.make(folder, shards, done)
    return {"done": done}


def command(*arguments: str) -> Callable[[Path, int], dict[str, Any]]:
    """A command of the product in a process of its own; what it printed last."""

    def run(folder: Path, shards: int) -> dict[str, Any]:
        output = Project(folder, {}).command(*arguments, timeout_s=7200)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken = {"cpu": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss // 1024}
        return {**taken, **summary(arguments, output)}

    return run


def summary(arguments: tuple[str, ...], output: str) -> dict[str, Any]:
    """What a command said, as far as it is to be checked."""
    if "--json" in arguments:
        (dataset,) = json.loads(output)["datasets"]
        states = [shard["status"] for shard in dataset["shards"]]
        records = sum(shard["records"] or 0 for shard in dataset["shards"])
        return {"done": states.count("done"), "missing": states.count("missing"), "records": records}
    if "--dry-run" in arguments:
        return {"to do": sum(line.split()[1:2] == ["manifest"] for line in output.splitlines())}
    return {"says": output.splitlines()[-1]}


STEPS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "catalogs planned, killed at 99 %": lambda folder, shards: plan_catalogs(folder, shards, True),
    "catalogs planned to the end": lambda folder, shards: plan_catalogs(folder, shards, False),
    "tars planned, one shard run, records copied": seed,
    "keys registered": register,
    "status --json": command("status", "--json"),
    "status --json again": command("status", "--json"),
    "run --dry-run: what is left": command("run", "--dry-run"),
    "sensor's tick": tick,
    "reconcile, all agrees": command("reconcile"),
    "(a hundredth lost)": lose,
    "reconcile, a hundredth lost": command("reconcile"),
    "(a hundredth new)": add_tars,
    "plan, a hundredth new": command("plan", manyshards.DATASET),
}


def run_step(name: str, folder: Path, shards: int) -> None:
    begun, cpu = time.perf_counter(), time.process_time()
    found = STEPS[name](folder, shards)
    own = {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps({**own, **found}))


def steps(folder: Path, shards: int, environment: dict[str, str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each step that this folder has not seen yet, with what it took and found."""
    done = folder / "steps.jsonl"
    seen = {json.loads(line)["step"] for line in done.read_text().splitlines()} if done.exists() else set()
    for name in STEPS:
        if name in seen:
            continue
        arguments = [sys.executable, "-m", __spec__.name, "--step", name, "--shards", str(shards), "--keep", str(folder)]
        ended = subprocess.run(
            arguments, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        found = json.loads(ended.stdout.splitlines()[-1])
        with open(done, "a") as file:
            file.write(json.dumps({"step": name, **found}) + "\n")
        yield name, found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=100_000)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--postgres", action="store_true", help="Dagster's records in a PostgreSQL of its own")
    where.add_argument("--keep", type=Path, help="a folder to work in and to go on with; else a temporary one")
    parser.add_argument("--step")
    given = parser.parse_args()
    if given.step:
        run_step(given.step, given.keep, given.shards)
        return
    with tempfile.TemporaryDirectory() if given.keep is None else nullcontext(str(given.keep)) as name:
        Path(name).mkdir(exist_ok=True)
        with manyshards.records_in(Path(name), given.postgres) as environment:
            print(f"{given.shards:,} shards\n{'step':45}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}", flush=True)
            for step, found in steps(Path(name), given.shards, environment):
                figures = [found.pop(key) for key in ("seconds", "cpu", "mb")]
                said = ", ".join(f"{key} {value}" for key, value in found.items())
                print(f"{step:45}{figures[0]:9.1f}{figures[1]:9.1f}{figures[2]:9}  {said}", flush=True)
                report(Figure(f"{given.shards:,} shards: {step}", "s", figures[0], note=f"{figures[2]} MB"))


if __name__ == "__main__":
    main()
