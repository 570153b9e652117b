"""What an engine is: something that answers chat requests. The loop in core.captioning knows only this."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request for a model: text first, then at most one picture, so that the prefix cache works.

    image: the bytes of a JPEG, PNG or WebP, or None; image_type: its MIME type. json_keys: the keys of the JSON object that is
    wanted, all with string values, or () for plain text. sampling: OpenAI's names (temperature, top_p, max_tokens, seed, stop,
    repetition_penalty); max_tokens is already that of the whole reply.
    """

    request_id: str
    text: str
    image: bytes | None
    image_type: str | None
    json_keys: tuple[str, ...]
    sampling: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What came back. Exactly one of reply and error is set, but for an answer with null content: both None.

    error: `timeout: …` or `model_error: …` (a refusal of this very request, such as 400); outages of an endpoint are never
    replies, they are retried elsewhere or raised as EngineDown. sent_at: seconds since 1970; latency_ms of the successful try.
    """

    request_id: str
    reply: str | None
    finish_reason: str | None
    error: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    latency_ms: float
    endpoint: str
    sent_at: float


@dataclass(frozen=True, slots=True)
class Revocation:
    """All replies of `request_ids` came from an endpoint found lying since its last good canary: ask again elsewhere."""

    endpoint: str
    request_ids: tuple[str, ...]


class EngineDown(Exception):
    """No endpoint answers, or none is left that tells the truth. Raised out of the step; Dagster retries it."""


class WrongSettings(EngineDown):
    """The config or the environment names a key, a model or an address that is not there: asking again changes nothing."""


class Session(Protocol):
    """One shard's use of an engine, inside one asyncio event loop. `async with engine.session() as session:`."""

    @property
    def concurrency(self) -> int:
        """How many asks may usefully be in flight at once now; changes as the fleet does."""
        ...

    @property
    def second_in_line(self) -> bool:
        """Another session of this machine is served first: this one's rate will be higher once that one is done."""
        ...

    async def ask(self, request: ChatRequest) -> ChatReply:
        """Sends it to the fittest endpoint; retries, fails over, waits for throttles. Raises EngineDown."""
        ...

    def revoked(self) -> Sequence[Revocation]:
        """Revocations found since the last call; to be looked at often, and once more when an ask raised EngineDown."""
        ...

    async def settle(self) -> Sequence[Revocation]:
        """To be called when everything was answered: every endpoint that answered since its last good canary is asked one.
        Returns what has to be asked again (then settle again after); nothing means the shard's replies stand."""
        ...

    def doubt(self, endpoints: Collection[str]) -> None:
        """Endpoints that answered this shard in an earlier step which did not end well (it was killed, or it raised): `settle`
        asks those that the engine knows a canary as if they had answered now. One that fails comes back as a Revocation, its
        request_ids those of this session (perhaps none). Endpoints that are gone cannot be asked and are passed over."""
        ...

    def metrics(self) -> dict[str, float | int | str]:
        """Figures for the metadata: canary requests, retries, throttles, prefix-cache hit rate where the server says so, …"""
        ...


class Engine(Protocol):
    """Opened once per process and settings, shared by all shards; each shard has a session of its own."""

    kind: str

    def session(self) -> AbstractAsyncContextManager[Session]:
        """Nothing is started or asked before the first request."""
        ...

    def close(self) -> None: ...
