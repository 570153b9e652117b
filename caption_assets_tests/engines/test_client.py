"""What one endpoint says, and what is made of it."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import orjson
import pytest
from aiohttp import web

from caption_assets.engines.base import ChatRequest
from caption_assets.engines.client import Came, Client, Outcome, http_session, metric, prefix_cache_counters
from caption_assets_tests.engines.asking import grid_request, single_request, text_request
from caption_assets_tests.stubs.openai_server import StubServer


def ask(stub: StubServer, *requests: ChatRequest, key: str | None = None, **client: object) -> list[Outcome]:
    async def go() -> list[Outcome]:
        async with http_session() as http:
            one = Client(http, client.get("url", stub.url), client.get("model", "stub"), key, "MY_KEY" if key else None)
            return [await one.ask(request) for request in requests]

    return asyncio.run(go())


def test_a_reply_says_who_when_and_how_long():
    with StubServer(latency=(0.05, 0.05)) as stub:
        (outcome,) = ask(stub, single_request("r", [(200, 30, 30)]))
    reply = outcome.reply
    assert outcome.came is Came.REPLY and reply is not None and "red" in (reply.reply or "")
    assert (reply.request_id, reply.endpoint, reply.finish_reason, reply.error) == ("r", stub.url, "stop", None)
    assert (reply.prompt_tokens, reply.completion_tokens) == (100, 20)
    assert reply.latency_ms >= 50 and abs(reply.sent_at - stub.log[0].at) < 5


TROUBLES = {
    "flap": Came.LOST,
    "error500": Came.FAULT,
    "drop": Came.LOST,
    "cut": Came.FAULT,
    "empty": Came.REPLY,
    "null": Came.REPLY,
}


@pytest.mark.parametrize("behaviour", TROUBLES)
def test_every_kind_of_trouble_has_its_name(behaviour):
    with StubServer(behaviour=behaviour, flap_s=time.time() / 1.5) as stub:  # so long that it is the time of refusing now
        (outcome,) = ask(stub, single_request("r"))
    assert outcome.came is TROUBLES[behaviour]


def test_a_throttle_says_for_how_long():
    with StubServer(behaviour="throttle", retry_after_s=7) as stub:
        outcomes = ask(stub, *[single_request("r")] * 20)
    assert {o.retry_after for o in outcomes if o.came is Came.THROTTLED} == {7.0}


def test_a_bad_picture_is_the_requests_own_fault():
    with StubServer() as stub:
        (outcome,) = ask(stub, dataclasses.replace(single_request("r"), image=b"no picture"))
    assert outcome.came is Came.REFUSED
    assert outcome.reply is not None and (outcome.reply.error or "").startswith("model_error: 400: cannot identify image")


def test_nobody_listens():
    with StubServer() as stub:
        url = stub.url
    (outcome,) = ask(stub, single_request("r"), url=url)
    assert outcome.came is Came.LOST and url in outcome.message


@pytest.mark.parametrize(
    ("server", "client", "says"),
    [
        ({"api_key": "right"}, {"key": "wrong"}, "the key in $MY_KEY is not accepted"),
        ({"api_key": "right"}, {}, "set engine.api_key_env"),
        ({}, {"model": "other"}, "has no model 'other'; it has: stub"),
    ],
)
def test_what_no_request_can_mend_says_what_to_change(server, client, says):
    with StubServer(**server) as stub:
        (outcome,) = ask(stub, single_request("r"), **client)
    assert outcome.came is Came.DENIED
    assert says in outcome.message and stub.url in outcome.message and "wrong" not in outcome.message


def test_an_address_without_v1_is_told_so():
    with StubServer() as stub:
        (outcome,) = ask(stub, single_request("r"), url=stub.url.removesuffix("/v1"))
    assert outcome.came is Came.DENIED and "/v1" in outcome.message


def test_the_key_is_sent():
    with StubServer(api_key="right") as stub:
        (outcome,) = ask(stub, single_request("r"), key="right")
    assert outcome.came is Came.REPLY


def test_what_the_endpoint_does_not_take_is_found_out_once():
    with StubServer(takes_schema=False, takes_extras=False) as stub:
        requests = [grid_request(f"r{n}", [(200, 30, 30), (40, 70, 220)], repetition_penalty=1.05) for n in range(5)]
        outcomes = ask(stub, *requests)
    assert [o.came for o in outcomes] == [Came.REPLY] * 5
    assert [entry.status for entry in stub.log] == [400, 400, 200, 200, 200, 200, 200]


def test_a_picture_of_several_megabytes_arrives_whole(recwarn):
    big = dataclasses.replace(single_request("r"), image=bytes(range(256)) * 20_000)
    with StubServer(answers="instant") as stub:
        ask(stub, big, text_request("t"))
    assert stub.log[0].picture_bytes > 20_000 * 256 * 4 / 3
    assert not [w for w in recwarn if issubclass(w.category, ResourceWarning)]


def test_prefix_cache_figures_of_vllm_are_read():
    page = (
        "# HELP vllm:prefix_cache_queries_total x\n"
        'vllm:prefix_cache_queries_total{engine="0",model_name="demo"} 300.0\n'
        'vllm:prefix_cache_queries_total{engine="1",model_name="demo"} 100.0\n'
        'vllm:prefix_cache_hits_total{engine="0",model_name="demo"} 90.0\n'
        'vllm:prefix_cache_hits_total{engine="1",model_name="demo"} 10.0\n'
        'vllm:prefix_cache_hits_created{engine="0",model_name="demo"} 1.7e9\n'
    )
    assert prefix_cache_counters(page) == (400.0, 100.0)
    assert prefix_cache_counters("# nothing\n") is None and metric(page, "vllm:prefix_cache_hits") is None


def answered(status: int, body: object, **headers: str) -> Outcome:
    """What the client makes of this answer to a request that came with the key `sk-private`."""

    async def go() -> Outcome:
        async def chat(_: web.Request) -> web.Response:
            return web.Response(status=status, body=orjson.dumps(body), headers=headers)

        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with http_session() as http:
                url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
                return await Client(http, url, "stub", "sk-private", "MY_KEY").ask(single_request("r"))
        finally:
            await runner.cleanup()

    return asyncio.run(go())


@pytest.mark.parametrize("status", [200, 400, 401, 418, 500])
def test_a_key_that_the_server_repeats_is_not_told(status):
    outcome = answered(status, {"error": {"message": "cannot take Bearer sk-private here"}})
    assert "cannot take Bearer *** here" in outcome.message
    assert "sk-private" not in str(outcome)


def test_a_redirect_is_told_without_what_may_be_secret():
    outcome = answered(307, {}, Location="https://me:pw@there/v1?token=abc")
    assert outcome.came is Came.DENIED and "redirects to https://***@there/v1?***:" in outcome.message


@pytest.mark.parametrize("usage", [None, [], [1], "many", {"prompt_tokens": "many", "completion_tokens": -1}])
def test_a_good_reply_with_an_odd_count_of_tokens_is_a_good_reply(usage):
    outcome = answered(200, {"choices": [{"message": {"content": "A red square."}, "finish_reason": "stop"}], "usage": usage})
    assert outcome.reply is not None and outcome.reply.reply == "A red square."
    assert (outcome.reply.prompt_tokens, outcome.reply.completion_tokens) == (None, None)
