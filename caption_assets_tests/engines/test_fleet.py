"""A fleet that lies, hangs, throttles and flaps: nothing is lost, nothing is wrong."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import ExitStack
from typing import Any

import pytest

from caption_assets.engines.base import EngineDown
from caption_assets.engines.fleet import FleetEngine
from caption_assets_tests.engines.asking import HASTY, Shard, fleet, single_request, text_request
from caption_assets_tests.stubs.openai_server import StubServer

BRISK = (0.01, 0.03)


def caption(shard: Shard, engine: FleetEngine, workers: int = 24) -> dict[str, Any]:
    async def go() -> dict[str, Any]:
        async with engine.session() as session:
            await shard.through(session, workers)
            return session.metrics()

    return asyncio.run(go())


@pytest.fixture
def stubs():
    """Starts stub servers: stubs("ok", "swap:50") is an honest one and one that swaps answers after 50 honest ones."""
    with ExitStack() as stack:

        def start(*behaviours: str, **settings: Any) -> list[StubServer]:
            parts = [b.partition(":") for b in behaviours]
            servers = [StubServer(behaviour=b, lie_after=int(n or 0), **{"latency": BRISK, **settings}) for b, _, n in parts]
            return [stack.enter_context(server) for server in servers]

        yield start


def urls(servers: list[StubServer]) -> list[str]:
    return [server.url for server in servers]


@pytest.mark.parametrize("grid", [True, False], ids=["grids", "singles"])
def test_six_endpoints_of_which_two_are_sound(stubs, grid):
    servers = stubs("hang", "throttle", "flap", "empty", "swap", "ok", "ok", flap_s=0.3, retry_after_s=0.05)
    shard = Shard(600, grid)
    figures = caption(shard, fleet(urls(servers)), workers=48)
    assert not shard.wrong
    assert set(figures["quarantined"].split(", ")) == {servers[3].url, servers[4].url}
    kind = "grid" if grid else "single"
    assert not servers[0].counts()
    assert sum(server.counts()[kind] for server in servers[3:5]) <= 32  # until the first sound one has shown how it is done
    assert sum(server.counts()[kind] for server in servers[5:]) >= 0.7 * len(shard.requests)
    assert sum(server.counts(answered_only=True)[kind] for server in servers) == shard.asked
    assert figures["canary_requests"] == sum(server.counts(canary=True)[kind] for server in servers)


@pytest.mark.parametrize("grid", [True, False], ids=["grids", "singles"])
@pytest.mark.parametrize("lie", ["swap:40", "empty:40", "null:40", "same:40", "babble:40", "nonsense:40"])
def test_what_a_liar_said_since_its_last_good_canary_is_asked_elsewhere(stubs, lie, grid):
    servers = stubs(lie, "ok")
    shard = Shard(200, grid)
    figures = caption(shard, fleet(urls(servers)))
    assert not shard.wrong
    assert figures["quarantined"] == servers[0].url
    assert figures["revoked"] == shard.asked - len(shard.requests) > 0


@pytest.mark.parametrize("trouble", ["hang:30", "drop:30", "error500:30", "cut:30"])
def test_an_endpoint_that_stops_answering_costs_no_record(stubs, trouble):
    servers = stubs(trouble, "ok")
    shard = Shard(150)
    figures = caption(shard, fleet(urls(servers)))
    assert not shard.wrong
    assert "quarantined" not in figures and figures["outages"] == 1


def test_an_endpoint_that_stops_answering_with_a_canary_under_way_is_not_waited_for_longer_than_its_requests(stubs):
    pace = dataclasses.replace(HASTY, canary_timeout_s=60, first_canary=30, canary_every=30)
    shard = Shard(300)
    figures = caption(shard, fleet(urls(stubs("hang:32", "ok")), pace, request_timeout_s=30))
    assert not shard.wrong
    assert figures["outages"] == 1 and figures["timeouts"] == 0, "its requests were taken back, none ran into its time-out"


def test_an_endpoint_that_comes_back_is_used_again(stubs):
    servers = stubs("ok", "ok")
    shards = [Shard(60, seed=n) for n in range(200)]

    async def go() -> None:
        async with fleet(urls(servers)).session() as session:
            servers[0].behaviour = "drop"
            await shards[0].through(session)
            before = servers[0].counts(answered_only=True)["single"]
            servers[0].behaviour = "ok"
            for shard in shards[1:]:
                await shard.through(session)
                if servers[0].counts(answered_only=True)["single"] > before:
                    return
            raise AssertionError("the endpoint answers again, and nobody asks it")

    asyncio.run(go())


def test_a_single_honest_endpoint_gets_one_canary_at_the_end(stubs):
    (server,) = stubs("ok")
    shard = Shard(20)
    figures = caption(shard, fleet(urls([server])))
    assert not shard.wrong and shard.asked == 20
    assert figures["canary_requests"] == 1 == sum(server.counts(canary=True).values())


def test_nothing_to_ask_sends_nothing(stubs):
    (server,) = stubs("ok")
    shard = Shard(0)
    figures = caption(shard, fleet(urls([server])))
    assert figures["canary_requests"] == 0 and not server.log


def test_a_second_shard_trusts_what_the_first_one_proved(stubs):
    servers = stubs("ok", "ok", "ok")
    engine = fleet(urls(servers), dataclasses.replace(HASTY, trust_s=60))
    first, second = (caption(Shard(60, grid=True, seed=n), engine) for n in (1, 2))
    assert first["canary_requests"] > second["canary_requests"] == len(servers)


@pytest.mark.parametrize("answers", ["same", "nonsense", "babble", "empty"])
def test_a_single_endpoint_that_was_never_better_is_not_condemned(stubs, answers):
    (server,) = stubs(answers)
    shard = Shard(30, grid=True)
    figures = caption(shard, fleet(urls([server])))
    assert len(shard.replies) == 30 and "quarantined" not in figures


def test_a_single_endpoint_that_begins_to_lie_stops_the_run_and_says_what_is_void(stubs):
    (server,) = stubs("empty:100")
    shard = Shard(300)
    engine = fleet(urls([server]))
    revoked: set[str] = set()

    async def go() -> None:
        async with engine.session() as session:
            with pytest.raises(EngineDown, match="without text"):
                await shard.through(session)
            for revocation in session.revoked():
                revoked.update(revocation.request_ids)

    asyncio.run(go())
    empty = {name for name, reply in shard.replies.items() if not reply.reply}
    assert empty <= revoked


def test_an_endpoint_of_an_earlier_step_is_asked_again(stubs):
    servers = stubs("ok", "ok")
    engine = fleet(urls(servers))
    caption(Shard(60, grid=True), engine)
    servers[0].behaviour = "empty"

    async def go() -> list[Any]:
        async with engine.session() as session:
            session.doubt([servers[0].url, "http://127.0.0.1:9/v1"])
            return list(await session.settle())

    (revocation,) = asyncio.run(go())
    assert (revocation.endpoint, revocation.request_ids) == (servers[0].url, ())


def test_a_refused_request_is_its_own_record_error(stubs):
    (server,) = stubs("ok")

    async def go() -> Any:
        async with fleet(urls([server])).session() as session:
            bad = dataclasses.replace(single_request("bad"), image=b"no picture")
            replies = await asyncio.gather(session.ask(bad), session.ask(single_request("good")))
            return replies, await session.settle()

    (bad, good), revocations = asyncio.run(go())
    assert bad.reply is None and bad.error.startswith("model_error: 400")
    assert good.error is None and not revocations


def test_a_request_that_times_out_alone_becomes_an_error(stubs):
    (server,) = stubs("ok", latency=(0.0, 0.0))
    server.hang_on = "slow"

    async def go() -> Any:
        async with fleet(urls([server]), request_timeout_s=0.4).session() as session:
            slow = session.ask(dataclasses.replace(single_request("slow"), text="slow"))
            replies = await asyncio.gather(slow, *(session.ask(single_request(f"r{n}")) for n in range(10)))
            return replies, await session.settle()

    (slow, *others), revocations = asyncio.run(go())
    assert slow.error.startswith("timeout: ") and slow.reply is None
    assert all(reply.error is None for reply in others) and not revocations


@pytest.mark.parametrize("trouble", ["hang", "drop", "error500", "cut"])
def test_an_outage_is_no_error_of_a_record(stubs, trouble):
    (server,) = stubs(trouble)
    with pytest.raises(EngineDown, match=r"no endpoint has answered for 1 s; .*"):
        caption(Shard(10), fleet(urls([server]), request_timeout_s=0.3))


def test_endpoints_that_only_throttle_are_given_up_some_time(stubs):
    servers = stubs("ok", "ok", capacity=-1)
    with pytest.raises(EngineDown, match=r"only throttled|429: slow down"):
        caption(Shard(10), fleet(urls(servers)))


@pytest.mark.parametrize("count", [1, 2])
def test_a_wrong_model_is_said_with_those_there_are(stubs, count):
    servers = stubs(*["ok"] * count)
    with pytest.raises(EngineDown, match=r"has no model 'other'; it has: stub"):
        caption(Shard(4), fleet(urls(servers), model="other"))


def test_a_key_that_is_not_set_is_named(stubs, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(EngineDown, match="NO_SUCH_KEY is not set"):
        caption(Shard(4), fleet(urls(stubs("ok")), api_key_env="NO_SUCH_KEY"))


def test_one_wrongly_configured_endpoint_of_two_is_left_out(stubs, monkeypatch):
    servers = stubs("ok", "ok")
    servers[0].api_key = "other"
    shard = Shard(40)
    caption(shard, fleet(urls(servers)))
    assert not shard.wrong and not servers[0].counts(answered_only=True)


def test_no_more_than_the_concurrency_is_in_flight(stubs):
    (server,) = stubs("ok")
    shard = Shard(100)
    caption(shard, fleet(urls([server]), concurrency=5), workers=50)
    assert not shard.wrong and server.most_in_flight <= 6  # one canary may come on top


def test_an_endpoint_that_takes_less_gets_less(stubs):
    (server,) = stubs("ok", capacity=4, retry_after_s=0.02)
    shard = Shard(300)
    figures = caption(shard, fleet(urls([server]), concurrency=32), workers=32)
    assert not shard.wrong
    assert figures["throttled"] < 150  # not one for every answer


def test_a_text_stage_works_with_a_model_that_takes_no_pictures(stubs):
    servers = stubs("ok", "ok", answers="instant")
    replies: list[Any] = []

    async def go() -> Any:
        async with fleet(urls(servers)).session() as session:
            replies.extend(await asyncio.gather(*(session.ask(text_request(f"t{n}", f"text {n}")) for n in range(60))))
            return await session.settle()

    assert not asyncio.run(go())
    assert len({reply.reply for reply in replies}) == 60
    assert all(not server.counts(canary=True)["grid"] and server.counts(canary=True)["text"] for server in servers)


def test_cancelled_asks_free_their_seats(stubs):
    (server,) = stubs("ok", latency=(1, 1))

    async def go() -> None:
        async with fleet(urls([server]), concurrency=2).session() as session:
            asks = [asyncio.create_task(session.ask(single_request(f"r{n}"))) for n in range(6)]
            await asyncio.sleep(0.1)  # two of them are under way
            for ask in asks[:4]:
                ask.cancel()
            done = await asyncio.gather(*asks, return_exceptions=True)
            assert [type(reply).__name__ for reply in done] == ["CancelledError"] * 4 + ["ChatReply"] * 2

    asyncio.run(go())
