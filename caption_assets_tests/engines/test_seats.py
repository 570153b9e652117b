"""Requests in flight per endpoint, over sessions and processes: `concurrency` holds for all of them together."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from caption_assets.engines.seats import Leave, Seats
from caption_assets_tests.engines.asking import Shard, fleet
from caption_assets_tests.stubs.openai_server import StubServer

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every session counts alone")
COUNT = 32


@pytest.fixture
def seats(request):
    """Makes sessions' seats at one endpoint."""
    made: list[Seats] = []

    def make(count: int = COUNT) -> Seats:
        made.append(Seats(f"http://{request.node.name}/v1", count))
        return made[-1]

    yield make
    for one in made:
        one.close()


def take_all(seats: Seats) -> list[Leave]:
    return list(iter(seats.take, None))


@linux
def test_two_sessions_share_the_seats_of_an_endpoint(seats):
    first, second = seats(), seats()
    taken = take_all(first)
    assert len(taken) == COUNT and second.take() is None
    taken.pop()()
    assert second.take()


@linux
def test_who_is_short_of_seats_gets_one_in_sixteen_and_no_more_until_the_other_is_done(seats):
    first, second = seats(), seats()
    leaves = take_all(first)
    assert second.take() is None
    for _ in range(COUNT // 16):
        leaves.pop()()
        assert first.take() is None, "somebody is short of seats"
        assert second.take()
    assert second.take() is None
    leaves.pop()()
    again = first.take()
    assert again, "a session at work keeps its seats"
    assert second.second_in_line and not first.second_in_line
    for leave in [again, *leaves]:
        leave()
    assert len(take_all(second)) == COUNT - COUNT // 16
    assert not second.second_in_line and not first.second_in_line


@linux
@pytest.mark.parametrize("count", [1, 2, 3, 16, 17])
def test_seats_that_all_wait_for_are_taken_by_whoever_looks_next(seats, count):
    sessions = [seats(count) for _ in range(3)]
    for turn in (0, 1, 2, 0, 1):
        leaves = [leave for session in sessions[turn:] + sessions[:turn] for leave in take_all(session)]
        assert len(leaves) == count
        for leave in leaves:
            leave()


@linux
def test_a_killed_process_leaves_its_seats(seats, request):
    url = f"http://{request.node.name}/v1"
    program = f"from caption_assets.engines.seats import Seats; s = Seats({url!r}, {COUNT}); t = list(iter(s.take, None)); "
    command = [sys.executable, "-c", program + "print(len(t), flush=True); input()"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == f"{COUNT}\n"
    mine = seats()
    assert mine.take() is None
    holder.kill()
    holder.communicate()
    assert mine.take()


def test_where_the_file_cannot_be_made_a_session_counts_alone(seats, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    first, second = seats(), seats()
    leaves = take_all(first)
    assert len(leaves) == len(take_all(second)) == COUNT
    leaves[0]()
    assert first.take() and first.take() is None


@linux
def test_two_shards_at_a_time_keep_to_the_concurrency_and_the_first_one_comes_first():
    shards = [Shard(240, seed=1), Shard(240, seed=2)]
    begun, done_when_first_ended = threading.Event(), []

    def caption(stub: StubServer, number: int) -> None:
        async def go() -> None:
            async with fleet([stub.url], concurrency=COUNT, request_timeout_s=60).session() as session:
                await shards[number].through(session, COUNT)

        asyncio.run(go())

    with StubServer(latency=(0.05, 0.1)) as stub:

        def first() -> None:
            caption(stub, 0)
            done_when_first_ended.append(len(shards[1].replies))

        threads = [threading.Thread(target=first), threading.Thread(target=lambda: begun.wait(60) and caption(stub, 1))]
        for thread in threads:
            thread.start()
        while stub.in_flight < COUNT and threads[0].is_alive():
            begun.wait(0.001)
        begun.set()
        for thread in threads:
            thread.join()
        assert not shards[0].wrong and not shards[1].wrong
        assert stub.most_in_flight <= COUNT + 2, "canaries come on top, one a session"
    assert done_when_first_ended[0] < 120
