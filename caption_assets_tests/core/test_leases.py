"""One run works on a shard; another waits or is told who does; nobody waits for the dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from caption_assets.core.loop.leases import LeaseHeld, hold, is_dead, process_token, read_lease
from caption_assets.core.objectstore import ObjectStore

HOLD = """
import sys, time
from caption_assets.core.loop.leases import hold
from caption_assets.core.objectstore import ObjectStore
with hold(ObjectStore(), sys.argv[1], "other-run"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "leases" / "s.json")


def _foreign(uri: str, run_id: str = "far", expires: float | None = None, ttl_s: float = 90.0) -> None:
    lease = {"run_id": run_id, "expires": expires or time.time() + 60, "holder": "elsewhere:b:1:2", "ttl_s": ttl_s}
    ObjectStore().put(uri, json.dumps(lease).encode())


def test_the_lease_says_who_holds_it_and_is_gone_afterwards(uri):
    objects = ObjectStore()
    with hold(objects, uri, "run-1"):
        lease = read_lease(objects, uri)
        assert lease.run_id == "run-1" and lease.holder == process_token()
        assert {"run_id", "expires"} <= set(json.loads(objects.read(uri)))
        assert not is_dead(objects, uri, lease)
        with pytest.raises(LeaseHeld, match=r" on .* \(run run-1, .* is at work"), hold(objects, uri, "run-2"):
            pass
    assert read_lease(objects, uri) is None


def test_inside_one_run_the_lease_is_no_obstacle(uri):
    objects = ObjectStore()
    with hold(objects, uri, "run-1"):
        with hold(objects, uri, "run-1"):
            pass
        assert read_lease(objects, uri) is not None


def test_a_killed_holder_is_dead_at_once(uri):
    process = subprocess.Popen([sys.executable, "-c", HOLD, uri], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(LeaseHeld, match="other-run"), hold(ObjectStore(), uri, "run-2"):
            pass
        process.send_signal(signal.SIGKILL)
        time.sleep(0.2)  # a zombie from here on: dead as well
        with hold(ObjectStore(), uri, "run-2"):
            assert read_lease(ObjectStore(), uri).run_id == "run-2"
    finally:
        process.kill()
        process.wait()


def test_a_reused_pid_does_not_keep_a_lease_alive(uri):
    objects, (host, boot, pid, start) = ObjectStore(), process_token().split(":")
    holder = f"{host}:{boot}:{pid}:{int(start) + 1}"
    objects.put(uri, json.dumps({"run_id": "x", "expires": time.time() + 60, "holder": holder, "ttl_s": 90}).encode())
    assert is_dead(objects, uri, read_lease(objects, uri))


def test_a_machine_of_the_same_name_is_not_this_one(uri):
    objects, (host, _, pid, start) = ObjectStore(), process_token().split(":")
    holder = f"{host}:another-boot:{pid}:{start}"
    objects.put(uri, json.dumps({"run_id": "x", "expires": 0, "holder": holder, "ttl_s": 90}).encode())
    assert not is_dead(objects, uri, read_lease(objects, uri))
    hours_ago = time.time() - 7200
    os.utime(uri, (hours_ago, hours_ago))
    assert is_dead(objects, uri, read_lease(objects, uri))


def test_a_lease_of_the_future_is_given_up(uri):
    _foreign(uri)
    next_year = time.time() + 365 * 86_400  # it was renewed before the store's clock was set right
    os.utime(uri, (next_year, next_year))
    assert is_dead(ObjectStore(), uri, read_lease(ObjectStore(), uri))


def test_a_lease_is_named_after_its_run_once_there_is_one(uri, monkeypatch):
    monkeypatch.setenv("USER", "anna")
    objects = ObjectStore()
    with hold(objects, uri, "not-begun") as held:
        held.name("run-1")
        assert read_lease(objects, uri).run_id == "run-1"
        with hold(objects, uri, "run-1") as inner:
            assert inner is None
        with pytest.raises(LeaseHeld, match=r"anna on .* \(run run-1, process"), hold(objects, uri, "run-2"):
            pass
    assert read_lease(objects, uri) is None


def test_waiting_ends_when_the_holder_is_done_or_dead(uri):
    _foreign(uri, ttl_s=0.3)
    with hold(ObjectStore(), uri, "run-2", wait_s=20):
        assert read_lease(ObjectStore(), uri).run_id == "run-2"


def test_waiting_has_an_end(uri):
    _foreign(uri)
    with pytest.raises(LeaseHeld, match=r"somebody on elsewhere \(run far"), hold(ObjectStore(), uri, "run-2", wait_s=0.2):
        pass


def test_the_heartbeat_renews_and_notices_that_another_took_over(uri):
    objects = ObjectStore()
    with hold(objects, uri, "run-1", ttl_s=0.15):
        first = read_lease(objects, uri).content
        time.sleep(0.2)
        assert read_lease(objects, uri).content != first
        _foreign(uri)
    assert read_lease(objects, uri).run_id == "far"  # what is another's is not removed


def test_junk_at_the_address_is_waited_out(uri):
    ObjectStore().put(uri, b"\x00 torn")
    with pytest.raises(LeaseHeld), hold(ObjectStore(), uri, "run-1"):
        pass


def test_of_many_at_once_one_gets_it(uri):
    got: list[str] = []
    barrier = threading.Barrier(8)

    def one(run_id: str) -> None:
        barrier.wait()
        try:
            with hold(ObjectStore(), uri, run_id):
                got.append(run_id)
                time.sleep(0.3)
        except LeaseHeld:
            pass

    threads = [threading.Thread(target=one, args=(f"run-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def test_there_is_no_token_for_a_process_that_is_not_there():
    assert process_token(2**22 + 1) is None
    assert process_token(os.getpid()).split(":")[2] == str(os.getpid())
