"""One endpoint over HTTP: sends a request, says what came of it. It neither waits nor tries again; the fleet does."""

from __future__ import annotations

import enum
import logging
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.payload import Payload

from caption_assets.core.hiding import hidden
from caption_assets.engines.base import ChatReply, ChatRequest
from caption_assets.engines.payload import CANARY_USER, Answer, BadBody, Dialect, body_parts, error_message, read_answer

log = logging.getLogger(__name__)

MAX_REPLY_BYTES = 16 << 20


class Came(enum.Enum):
    """What came of a request."""

    REPLY = "reply"
    REFUSED = "refused"  # this very request: 400, 413, 422
    THROTTLED = "throttled"  # 429, or 503 with Retry-After
    FAULT = "fault"  # an answer that is none: 500, half a body
    LOST = "lost"  # the endpoint was not there: connection faults, 502 to 504
    TIMEOUT = "timeout"
    DENIED = "denied"  # no request will do better: key, model or address is wrong


@dataclass(slots=True)
class Outcome:
    """reply: set for REPLY and REFUSED. retry_after: seconds, where a throttle says so."""

    came: Came
    message: str = ""
    reply: ChatReply | None = None
    retry_after: float | None = None


class _Body(Payload):
    """A body of bytes, sent in one piece; aiohttp's own warns above 1 MB."""

    def __init__(self, parts: tuple[bytes, ...]) -> None:
        body = b"".join(parts)
        super().__init__(body, content_type="application/json")
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return str(self._value, encoding, errors)

    async def write(self, writer: Any) -> None:
        await writer.write(self._value)


def http_session() -> aiohttp.ClientSession:
    """The connections of one fleet; its own limits bound what is in flight."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60), timeout=aiohttp.ClientTimeout(total=None, sock_connect=20)
    )


class Client:
    """Asks one endpoint, `url` being the part before /chat/completions. What the endpoint accepts is learned and kept."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, model: str, key: str | None = None, key_name: str | None = None
    ) -> None:
        self.url, self.model = url, model
        self.dialect = Dialect()
        self._http, self._key_name = http, key_name
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._key = key

    async def ask(self, request: ChatRequest, canary: bool = False) -> Outcome:
        """Sends it once, or again in a plainer form where the endpoint refuses a parameter."""
        while True:
            dialect = self.dialect
            outcome = await self._post(request, dialect, canary)
            if outcome.came is not Came.REFUSED:
                return outcome
            plainer = dialect.after(outcome.message, request)
            if plainer is None:
                return outcome
            if self.dialect == dialect:  # the first to find out
                log.warning("%s refused a parameter, going on without it: %s", self.url, outcome.message)
                self.dialect = plainer

    async def _post(self, request: ChatRequest, dialect: Dialect, canary: bool) -> Outcome:
        body = _Body(body_parts(request, self.model, dialect, CANARY_USER if canary else None))
        sent_at, started = time.time(), time.perf_counter()
        try:
            async with self._http.post(
                f"{self.url}/chat/completions", data=body, headers=self._headers, allow_redirects=False
            ) as response:
                content = await _bounded(response)
                status, headers = response.status, response.headers
        except (aiohttp.ClientError, OSError) as error:
            return Outcome(Came.LOST, f"{self.url}: {error or type(error).__name__}")
        if status != 200:
            return await self._not_ok(request, status, content, headers, sent_at, started)
        try:
            answer = read_answer(content)
        except BadBody as error:
            return Outcome(Came.FAULT, hidden(str(error), self._key))
        return Outcome(Came.REPLY, reply=self._reply(request, answer, None, sent_at, started))

    async def _not_ok(
        self, request: ChatRequest, status: int, content: bytes, headers: Any, sent_at: float, started: float
    ) -> Outcome:
        message = f"{status}: {error_message(content, self._key)}"
        retry_after = _retry_after(headers.get("Retry-After"))
        if status in (400, 413, 415, 422):
            none = Answer(None, None, None, None)
            return Outcome(Came.REFUSED, message, self._reply(request, none, f"model_error: {message}", sent_at, started))
        if (status == 429 and "insufficient_quota" not in message) or (status == 503 and retry_after is not None):
            return Outcome(Came.THROTTLED, message, retry_after=retry_after)
        if status in (502, 503, 504, 408, 425):
            return Outcome(Came.LOST, f"{self.url}: {message}")
        if status >= 500 or status in (201, 202, 204, 409):
            return Outcome(Came.FAULT, message)
        return Outcome(Came.DENIED, await self._why_denied(status, message, headers))

    def _reply(self, request: ChatRequest, answer: Answer, error: str | None, sent_at: float, started: float) -> ChatReply:
        latency_ms = (time.perf_counter() - started) * 1000
        return ChatReply(
            request.request_id, answer.text, answer.finish_reason, error, answer.prompt_tokens, answer.completion_tokens,
            latency_ms, self.url, sent_at,
        )  # fmt: skip

    async def _why_denied(self, status: int, message: str, headers: Any) -> str:
        """What to change, in one sentence."""
        if status in (401, 403):
            key = f"the key in ${self._key_name} is not accepted" if self._headers else "it wants a key: set engine.api_key_env"
            return f"endpoint {self.url}: {key} ({message})"
        if 300 <= status < 400:
            to = hidden(str(headers.get("Location")))
            return f"endpoint {self.url} redirects to {to}: write the final address into engine.endpoints"
        if status in (404, 405):
            names = await self.models()
            if names is None:
                return f"endpoint {self.url}: no OpenAI API is there; does the address end in /v1? ({message})"
            if self.model not in names:
                return f"endpoint {self.url} has no model {self.model!r}; it has: {', '.join(names) or 'none'}"
        return f"endpoint {self.url}: {message}"

    async def models(self) -> list[str] | None:
        """The names of the models the endpoint has; None where it does not say."""
        try:
            async with self._http.get(f"{self.url}/models", headers=self._headers, timeout=aiohttp.ClientTimeout(10)) as response:
                return [str(model["id"]) for model in orjson.loads(await _bounded(response))["data"]]
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
            return None

    async def prefix_cache(self) -> tuple[float, float] | None:
        """Tokens looked up in vLLM's prefix cache and found there since its start; None where the endpoint is no vLLM."""
        parts = urlsplit(self.url)
        try:
            async with self._http.get(f"{parts.scheme}://{parts.netloc}/metrics", timeout=aiohttp.ClientTimeout(2)) as response:
                return prefix_cache_counters((await _bounded(response)).decode("utf-8", "replace"))
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None


def prefix_cache_counters(text: str) -> tuple[float, float] | None:
    """(queries, hits) of vLLM's /metrics, summed over its engines."""
    queries, hits = metric(text, "vllm:prefix_cache_queries_total"), metric(text, "vllm:prefix_cache_hits_total")
    return None if queries is None or hits is None else (queries, hits)


def metric(text: str, name: str) -> float | None:
    """The sum of a Prometheus metric over its labels; None where the text has none of it."""
    values = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith(name) and line[len(name) : len(name) + 1] in ("{", " ")
    ]
    return sum(values) if values else None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    """The body, never more than MAX_REPLY_BYTES of it."""
    if (response.content_length or 0) > MAX_REPLY_BYTES:
        raise aiohttp.ClientPayloadError(f"a reply of {response.content_length} bytes")
    if response.content_length is not None and not response.headers.get("Content-Encoding"):
        return await response.read()
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_REPLY_BYTES:
            raise aiohttp.ClientPayloadError(f"a reply of more than {MAX_REPLY_BYTES} bytes")
    return b"".join(pieces)


def _retry_after(value: str | None) -> float | None:
    """Seconds to wait: the header is a number or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
