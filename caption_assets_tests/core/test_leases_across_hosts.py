"""Leases between machines whose clocks are minutes apart: on disk, in S3 with conditional puts and without."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time

import pytest

from caption_assets.core.loop.leases import LeaseHeld, hold, is_dead, read_lease
from caption_assets.core.objectstore import ObjectStore
from caption_assets_tests.project import wait_until
from caption_assets_tests.stubs.s3_server import FakeS3

STORES = ("disk", "s3", pytest.param("s3 with conditional puts", marks=pytest.mark.long))
MINUTES = 60.0

FAR = """
import json, socket, sys, time
address, settings, skew, ttl_s = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
real = time.time
time.time = lambda: real() + skew           # this machine's clock is wrong, and it has a name of its own
socket.gethostname = lambda: "far"
from caption_assets.config import S3Config
from caption_assets.core.loop.leases import LeaseHeld, hold
from caption_assets.core.objectstore import ObjectStore
objects = ObjectStore(S3Config.model_validate_json(settings))
try:
    with hold(objects, address, "far-run", ttl_s=ttl_s):
        print("held", flush=True)
        sys.stdin.readline()
except LeaseHeld as held:
    print("refused by", held.lease.run_id, flush=True)
"""


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    """(objects, address of a lease) in each kind of store."""
    if request.param == "disk":
        return ObjectStore(), str(tmp_path / "leases" / "s.json")
    server = request.getfixturevalue("s3_server" if request.param == "s3" else "moto_server")
    return server.store(), f"s3://{server.make_bucket()}/leases/s.json"


@contextlib.contextmanager
def far_process(objects: ObjectStore, uri: str, skew: float, ttl_s: float = 90.0):
    """A process of another machine that tries to hold the lease; its first line says whether it could."""
    command = [sys.executable, "-c", FAR, uri, objects.s3.model_dump_json(), str(skew), str(ttl_s)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        process.said = process.stdout.readline().strip()
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("skew", [-20 * MINUTES, 20 * MINUTES])
def test_a_healthy_holder_with_a_wrong_clock_is_left_alone(store, skew):
    objects, uri = store
    with far_process(objects, uri, skew) as holder:
        assert holder.said == "held"
        lease = read_lease(objects, uri)
        assert abs(lease.expires - time.time() - skew) < 5 * MINUTES and lease.host == "far"
        assert not is_dead(objects, uri, lease)
        with pytest.raises(LeaseHeld, match=r"on far \(run far-run, "), hold(objects, uri, "near-run"):
            pass


@pytest.mark.parametrize("skew", [-20 * MINUTES, 20 * MINUTES])
def test_a_machine_with_a_wrong_clock_leaves_a_healthy_holder_alone(store, skew):
    objects, uri = store
    with hold(objects, uri, "near-run"), far_process(objects, uri, skew) as other:
        assert other.said == "refused by near-run"


@pytest.mark.parametrize("skew", [-20 * MINUTES, 20 * MINUTES])
def test_a_dead_holder_is_followed_after_its_time_whatever_its_clock_said(store, skew):
    objects, uri = store
    with far_process(objects, uri, skew) as holder:
        assert holder.said == "held"
    assert not is_dead(objects, uri, read_lease(objects, uri))  # it was renewed a moment ago
    _shorten(objects, uri, 2.0)
    wait_until(lambda: is_dead(objects, uri, read_lease(objects, uri)))
    with hold(objects, uri, "near-run") as held:
        assert read_lease(objects, uri).run_id == "near-run" and held.taken_from == "far-run"
    with far_process(objects, uri, skew) as other:
        assert other.said == "held"


def test_renewal_keeps_a_lease_alive_for_long_after_its_first_time_to_live(store):
    objects, uri = store
    with far_process(objects, uri, 20 * MINUTES, ttl_s=4.0) as holder:
        assert holder.said == "held"
        first = read_lease(objects, uri)
        wait_until(lambda: read_lease(objects, uri).expires > first.expires + 5)
        assert not is_dead(objects, uri, read_lease(objects, uri))


def test_of_two_that_take_a_dead_lease_one_wins(store):
    objects, uri = store
    dead = {"run_id": "dead-run", "expires": 0, "holder": "elsewhere:b:1:2", "ttl_s": 0.0}
    objects.put(uri, json.dumps(dead).encode())
    wait_until(lambda: is_dead(objects, uri, read_lease(objects, uri)))
    assert len(_at_once(objects, uri, 4)) == 1


@pytest.mark.parametrize("conditional", ["honoured", "ignored", "refused"])
def test_of_many_that_take_a_free_lease_at_once_one_wins_without_conditional_puts_too(conditional, s3_keys):
    with FakeS3(conditional=conditional) as s3:
        assert len(_at_once(s3.store(), "s3://cases/leases/s.json", 4)) == 1


def test_a_store_that_cannot_be_asked_for_its_time_takes_nothing_from_anybody(s3_keys):
    with FakeS3() as s3:
        objects, uri = s3.store(patience_s=0.1), "s3://cases/leases/s.json"
        objects.put(uri, json.dumps({"run_id": "x", "expires": 0, "holder": "elsewhere:b:1:2", "ttl_s": -1.0}).encode())
        lease = read_lease(objects, uri)
        assert is_dead(objects, uri, lease)
        s3.faults.append(_read_only())
        assert not is_dead(objects, uri, lease)


def _read_only():
    from caption_assets_tests.stubs.s3_server import Fault

    return Fault(op="PUT", status=403, code="AccessDenied")


def _at_once(objects: ObjectStore, uri: str, count: int) -> list[str]:
    """Runs that hold the lease, of so many that try at the same instant."""
    got: list[str] = []
    start, tried = threading.Barrier(count), threading.Barrier(count)

    def one(run_id: str) -> None:
        start.wait()
        try:
            with hold(objects, uri, run_id):
                got.append(run_id)
                tried.wait(60)
        except LeaseHeld:
            tried.wait(60)

    threads = [threading.Thread(target=one, args=(f"run-{n}",)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def _shorten(objects: ObjectStore, uri: str, ttl_s: float) -> None:
    """As if the lease had been made with another time to live."""
    objects.put(uri, json.dumps({**json.loads(objects.read(uri)), "ttl_s": ttl_s}).encode())
