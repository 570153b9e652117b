"""CPU time of one request with a picture of 60 KB: bare aiohttp, our client, a whole session, and the openai SDK where installed.

`python -m caption_assets_tests.benchmarks.client [requests] [rounds]`. The server is another process, so only the client's time
counts. Bare posts bodies that are ready; our ways encode picture and text for each request. Wanted: the client within 1.5
times bare.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import os
import sys
from typing import Any

import aiohttp

from caption_assets.config import EngineConfig
from caption_assets.engines import open_engine
from caption_assets.engines.base import ChatRequest
from caption_assets.engines.client import Client, http_session
from caption_assets.engines.payload import body_parts
from caption_assets_tests.benchmarks import collection
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import cpu_medians

QUICK = (500, 5)
IN_FLIGHT = 64
SAMPLING = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 256, "repetition_penalty": 1.05, "seed": 0}


async def all_of(requests: list[ChatRequest], ask) -> None:
    left = iter(requests)

    async def work() -> None:
        for request in left:
            await ask(request)

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


def bare(url: str, requests: list[ChatRequest]) -> None:
    bodies = {request.request_id: b"".join(body_parts(request, "stub")) for request in requests[:1]}
    body = bodies[requests[0].request_id]

    async def go() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

            async def ask(_: ChatRequest) -> None:
                async with http.post(f"{url}/chat/completions", data=body, headers={"Content-Type": "application/json"}) as reply:
                    assert (await reply.json())["choices"]

            await all_of(requests, ask)

    asyncio.run(go())


def client(url: str, requests: list[ChatRequest]) -> None:
    async def go() -> None:
        async with http_session() as http:
            await all_of(requests, Client(http, url, "stub").ask)

    asyncio.run(go())


def session(url: str, requests: list[ChatRequest]) -> None:
    config = EngineConfig(kind="openai", model="stub", endpoints=[url], concurrency=IN_FLIGHT)

    async def go() -> None:
        async with open_engine(config).session() as fleet:
            await all_of(requests, fleet.ask)
            await fleet.settle()

    asyncio.run(go())


def sdk(url: str, requests: list[ChatRequest]) -> None:
    import openai

    async def go() -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="none") as api:

            async def ask(request: ChatRequest) -> None:
                picture = f"data:image/jpeg;base64,{base64.b64encode(request.image or b'').decode()}"
                content = [{"type": "text", "text": request.text}, {"type": "image_url", "image_url": {"url": picture}}]
                extra = {"repetition_penalty": SAMPLING["repetition_penalty"]}
                plain = {name: value for name, value in SAMPLING.items() if name not in extra}
                await api.chat.completions.create(
                    model="stub", messages=[{"role": "user", "content": content}], extra_body=extra, **plain
                )

            await all_of(requests, ask)

    asyncio.run(go())


def main(count: int = 1000, rounds: int = 5) -> None:
    picture = os.urandom(60_000)
    requests = [ChatRequest(f"r{n}", "Describe the picture.", picture, "image/jpeg", (), SAMPLING) for n in range(count)]
    with collection.server("--answers", "instant") as url:
        ways = {"bare aiohttp": bare, "client": client, "session": session}
        if importlib.util.find_spec("openai"):
            ways["openai SDK"] = sdk
        medians = cpu_medians({name: lambda way=way: way(url, requests) for name, way in ways.items()}, rounds)
    floor = medians["bare aiohttp"]
    print(f"{count} requests of 60 KB, {IN_FLIGHT} in flight, median of {rounds}")
    for name, milliseconds in medians.items():
        print(f"  {name:14} {milliseconds / count:6.3f} CPU ms a request   {milliseconds / floor:5.2f} x bare")
    each = {name: milliseconds / count for name, milliseconds in medians.items()}
    beside: dict[str, Any] = {"floor": each["bare aiohttp"], "floor_way": "aiohttp, bodies ready", "of_floor": 1.5}
    if "openai SDK" in each:
        beside |= {"obvious": each["openai SDK"], "obvious_way": "openai SDK"}
    report(Figure("request with a picture of 60 KB", "CPU ms", each["client"], **beside))
    report(Figure("the same through a fleet's session", "CPU ms", each["session"], **{**beside, "of_floor": None}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
