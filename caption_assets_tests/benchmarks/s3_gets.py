"""1,000 gets of 100 KB from a real S3 server (the JuiceFS gateway on loopback): client CPU time and gets a second.

`python -m caption_assets_tests.benchmarks.s3_gets [rounds]`. The obvious way: boto3 with 16 threads. The floor: one streamed
get of the same bytes.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import Median
from caption_assets_tests.servers import S3Server, running_s3_server, set_test_keys

QUICK = (3,)
GETS, SIZE, THREADS = 1000, 100_000, 16


@contextmanager
def filled(server: S3Server):
    bucket, client, blob = server.make_bucket(), server.client(), os.urandom(SIZE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: client.put_object(Bucket=bucket, Key=f"p/{n:04d}.jpg", Body=blob), range(GETS)))
    client.put_object(Bucket=bucket, Key="whole.tar", Body=blob * GETS)
    yield bucket, client


def boto(client: object, bucket: str) -> int:
    def get(n: int) -> int:
        return len(client.get_object(Bucket=bucket, Key=f"p/{n:04d}.jpg")["Body"].read())

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(get, range(GETS)))


def read_many(server: S3Server, bucket: str) -> int:
    items = ((f"s3://{bucket}/p/{n:04d}.jpg", 0, None) for n in range(GETS))
    return sum(len(data) for data in server.store().read_many(items, THREADS))


def ranges(server: S3Server, bucket: str) -> int:
    items = ((f"s3://{bucket}/whole.tar", n * SIZE, SIZE) for n in range(GETS))
    return sum(len(data) for data in server.store().read_many(items, THREADS))


def stream(server: S3Server, bucket: str) -> int:
    with server.store().open(f"s3://{bucket}/whole.tar") as file:
        return sum(iter(lambda: len(file.read(SIZE)), 0))


def floor_of(client: object, bucket: str) -> int:
    body = client.get_object(Bucket=bucket, Key="whole.tar")["Body"]
    return sum(iter(lambda: len(body.read(1 << 20)), 0))


def measure(run: Callable[[], int]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    assert run() == GETS * SIZE
    return time.process_time() - cpu, time.perf_counter() - wall


def main(rounds: int) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        set_test_keys(patch)
        with running_s3_server(Path(folder)) as server, filled(server) as (bucket, client):
            ways: dict[str, Callable[[], int]] = {
                "boto3, 16 threads (obvious)": lambda: boto(client, bucket),
                "ours: read_many, 16": lambda: read_many(server, bucket),
                "ours: read_many of ranges, 16": lambda: ranges(server, bucket),
                "ours: open, streamed": lambda: stream(server, bucket),
                "boto3, one streamed get (floor)": lambda: floor_of(client, bucket),
            }
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, run in ways.items():
                    found[name].append(measure(run))
    cpu = {name: Median(c for c, _ in runs) / (GETS / 1000) for name, runs in found.items()}
    obvious, floor = cpu["boto3, 16 threads (obvious)"], cpu["boto3, one streamed get (floor)"]
    print(f"{'':34}{'CPU ms/100 KB':>14}{'of obvious':>12}{'of floor':>10}{'gets/s':>9}")
    for name, runs in found.items():
        rate = GETS / statistics.median(w for _, w in runs)
        print(f"{name:34}{cpu[name]:14.3f}{cpu[name] / obvious:12.2f}{cpu[name] / floor:10.1f}{rate:9.0f}")
    plain, way = {"obvious": obvious, "obvious_way": "boto3, 16 threads"}, "boto3, one streamed get"
    report(Figure("S3 get of 100 KB", "CPU ms", cpu["ours: read_many, 16"], **plain))
    report(Figure("S3 range of 100 KB", "CPU ms", cpu["ours: read_many of ranges, 16"], **plain))
    report(Figure("100 KB of a streamed S3 object", "CPU ms", cpu["ours: open, streamed"], **plain, floor=floor, floor_way=way))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
