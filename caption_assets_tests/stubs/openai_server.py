"""An OpenAI-compatible server that answers like a good model, or misbehaves in a chosen way; it runs in a thread or as a program.

    with StubServer(behaviour="flap") as stub: … stub.url … stub.counts()
    python -m caption_assets_tests.stubs.openai_server --behaviour hang --latency 0.05 0.5 --log requests.jsonl

As a program it wants the key that $VLLM_API_KEY names, if any.

Behaviours: ok; hang (never answers); throttle (429 with Retry-After for half of the requests); flap (refuses with 503 half
of the time, in periods of `flap_s`); empty, null (200 without text); swap (each cell gets another cell's caption, a single
picture that of the picture before); same (one text for all); nonsense (no JSON, no sense); babble (right keys, no sense);
error500; drop (closes the connection); cut (half a body). A picture that cannot be decoded is refused with 400 (not by
`answers="instant"`, which decodes none).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import random
import threading
import time
from collections import Counter
from typing import Any, Literal

import orjson
from aiohttp import web

from caption_assets_tests.stubs.answers import Asked, BadPicture, instant, read_request, truthful
from caption_assets_tests.stubs.batches import BatchDesk

BEHAVIOURS = ("ok", "hang", "throttle", "flap", "empty", "null", "swap", "same", "nonsense", "babble", "error500", "drop", "cut")


@dataclasses.dataclass
class Logged:
    """One chat request: kind grid, single or text; the HTTP status and the text it got (0 and "": none, or not yet)."""

    kind: str
    canary: bool
    keys: tuple[str, ...]
    status: int
    sent: str
    text: str
    picture_bytes: int
    at: float


@dataclasses.dataclass
class StubServer:
    """One endpoint on loopback, in a thread with a loop of its own. All fields may be changed while it runs.

    latency: seconds, drawn evenly; rate: cells answered per second over all requests, None without bound; capacity: requests in
    flight before 429; lie_after: the behaviour shows only after this many answers; hang_on: requests with this text are never
    answered; takes_schema, takes_extras: whether response_format and parameters that OpenAI does not have (repetition_penalty)
    are accepted.
    """

    behaviour: str = "ok"
    answers: Literal["truthful", "instant"] = "truthful"
    latency: tuple[float, float] = (0.0, 0.0)
    rate: float | None = None
    capacity: int | None = None
    lie_after: int = 0
    flap_s: float = 1.0
    retry_after_s: float = 0.1
    rows: int = 2
    cols: int = 2
    model: str = "stub"
    api_key: str | None = None
    takes_schema: bool = True
    takes_extras: bool = True
    host: str = "127.0.0.1"
    port: int = 0
    seed: int = 0
    log_path: str | None = None
    hang_on: str | None = None

    def __post_init__(self) -> None:
        self.log: list[Logged] = []
        self.in_flight = self.most_in_flight = 0
        self._random = random.Random(self.seed)
        self._answered = 0
        self._free_at = 0.0
        self._before: dict[str, str] = {}
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.batches = BatchDesk(self._row)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    def counts(self, canary: bool = False, answered_only: bool = False) -> Counter[str]:
        """Chat requests so far by kind (grid, single, text), canaries apart; answered_only: those that got 200."""
        return Counter(e.kind for e in list(self.log) if e.canary == canary and (e.status == 200 or not answered_only))

    def __enter__(self) -> StubServer:
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"stub-{self.behaviour}")
        self._thread.start()
        self._ready.wait(30)
        if self._failure:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread:
            self._thread.join(30)

    def _run(self) -> None:
        try:
            asyncio.run(self.serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def serve(self) -> None:
        """Serves until stopped."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/stub/counts", self._counts)
        app.router.add_post("/stub/set", self._set)
        self.batches.add_routes(app)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, self.host, self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._stop.wait()
        await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=f"vllm:num_requests_running {self.in_flight}\n")

    async def _models(self, request: web.Request) -> web.Response:
        if not self._authorised(request):
            return _error(401, "Incorrect API key provided")
        return _json(200, {"object": "list", "data": [{"id": self.model, "object": "model", "created": 0, "owned_by": "stub"}]})

    async def _counts(self, _: web.Request) -> web.Response:
        """For tests that run the stub as a program: the counts as JSON."""
        return _json(200, {"asked": self.counts(), "canaries": self.counts(canary=True), "most_in_flight": self.most_in_flight})

    async def _set(self, request: web.Request) -> web.Response:
        """For tests that run the stub as a program: changes fields, such as {"behaviour": "hang"}."""
        for name, value in orjson.loads(await request.read()).items():
            setattr(self, name, value)
        return _json(200, {})

    def _authorised(self, request: web.Request) -> bool:
        return self.api_key is None or request.headers.get("Authorization") == f"Bearer {self.api_key}"

    async def _row(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        """One row of a batch; not in the log of chat requests."""
        return (await self._respond(request, body, read_request(body)))[0]

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        at = time.time()
        body = orjson.loads(await request.read())
        asked = read_request(body)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        entry = Logged(asked.kind, asked.canary, asked.keys, 0, "", asked.text, len(asked.data_url or ""), at)
        self.log.append(entry)
        try:
            response, entry.sent = await self._respond(request, body, asked)
            entry.status = response.status
            return response
        finally:
            self.in_flight -= 1
            self._write(entry)

    def _write(self, entry: Logged) -> None:
        if self.log_path:
            with open(self.log_path, "ab") as file:
                file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))

    async def _respond(self, request: web.Request, body: dict[str, Any], asked: Asked) -> tuple[web.Response, str]:
        """The answer, and the text it holds."""
        if refusal := self._refusal(request, body):
            return refusal, ""
        behaviour = self.behaviour if self._answered >= self.lie_after else "ok"
        if behaviour == "hang" or (self.hang_on and self.hang_on in asked.text):
            await asyncio.sleep(3600)
        if behaviour == "drop" and request.transport:
            request.transport.abort()
            raise asyncio.CancelledError
        if behaviour == "flap" and int(time.time() / self.flap_s) % 2:
            return _error(503, "overloaded"), ""
        if behaviour == "error500":
            return _error(500, "internal error"), ""
        if (behaviour == "throttle" and self._random.random() < 0.5) or self.in_flight > (self.capacity or 1 << 30):
            return _error(429, "slow down", {"Retry-After": f"{self.retry_after_s:g}"}), ""
        await self._wait(len(asked.keys) or 1)
        try:
            captions = instant(asked) if self.answers == "instant" else truthful(asked, self.rows, self.cols)
        except BadPicture as error:
            return _error(400, f"cannot identify image: {error}"), ""
        content = self._content(behaviour, captions, asked)
        self._answered += 1
        self._before = captions
        return _json(200, _completion(self.model, content), cut=behaviour == "cut"), content or ""

    def _refusal(self, request: web.Request, body: dict[str, Any]) -> web.Response | None:
        if not self._authorised(request):
            return _error(401, "Incorrect API key provided")
        if body.get("model") != self.model:
            return _error(404, f"The model `{body.get('model')}` does not exist.")
        if "response_format" in body and not self.takes_schema:
            return _error(400, "response_format is not supported by this model")
        if "repetition_penalty" in body and not self.takes_extras:
            return _error(400, "Unrecognized request argument supplied: repetition_penalty")
        return None

    async def _wait(self, cells: int) -> None:
        wait = self._random.uniform(*self.latency) if self.latency[1] else 0.0
        if self.rate:
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + cells / self.rate
            wait = max(wait, self._free_at - now)
        if wait:
            await asyncio.sleep(wait)

    def _content(self, behaviour: str, captions: dict[str, str], asked: Asked) -> str | None:
        if behaviour == "null":
            return None
        if behaviour == "empty":
            return ""
        if behaviour == "nonsense":
            return "zu vel " * self._random.randint(2, 9)
        keys = list(captions)
        if behaviour == "babble":
            captions = {key: f"vel {self._random.random()} zu" for key in keys}
        elif behaviour == "same":
            captions = dict.fromkeys(keys, "A photograph of something on a light background.")
        elif behaviour == "swap":
            others = keys[1:] + keys[:1]
            captions = {k: captions[o] for k, o in zip(keys, others, strict=True)} if len(keys) > 1 else self._before or captions
        return orjson.dumps(captions).decode() if asked.keys else next(iter(captions.values()))


def _completion(model: str, content: str | None) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    message = {"role": "assistant", "content": content}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    return {"id": "chatcmpl-stub", "object": "chat.completion", "created": 0, "model": model, "choices": choices, "usage": usage}


def _json(status: int, value: Any, headers: dict[str, str] | None = None, cut: bool = False) -> web.Response:
    body = orjson.dumps(value)
    return web.Response(
        status=status, body=body[: len(body) // 2] if cut else body, content_type="application/json", headers=headers
    )


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return _json(status, {"error": {"message": message, "type": "stub", "code": status}}, headers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--behaviour", choices=BEHAVIOURS, default="ok")
    parser.add_argument("--answers", choices=["truthful", "instant"], default="truthful")
    parser.add_argument("--latency", type=float, nargs=2, default=(0.0, 0.0))
    parser.add_argument("--rate", type=float)
    parser.add_argument("--capacity", type=int)
    parser.add_argument("--lie-after", type=int, default=0)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--cols", type=int, default=2)
    parser.add_argument("--model", default="stub")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", dest="log_path", help="a JSONL file, one line per request")
    options = vars(parser.parse_args())
    stub = StubServer(**{**options, "latency": tuple(options["latency"]), "api_key": os.environ.get("VLLM_API_KEY")})

    async def run() -> None:
        serving = asyncio.create_task(stub.serve())
        while not stub._ready.is_set() and not serving.done():
            await asyncio.sleep(0.01)
        print(f"READY {stub.url}", flush=True)
        await serving

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


if __name__ == "__main__":
    main()
