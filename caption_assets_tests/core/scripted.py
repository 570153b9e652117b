"""An engine inside the process whose every answer a test decides. The real engines are tested with the stub server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import orjson

from caption_assets.engines.base import ChatReply, ChatRequest, Revocation


def good(request: ChatRequest, what: str = "A fine picture of something") -> str:
    """The answer of a model that does as it is told; texts differ."""
    if not request.json_keys:
        return f"{what}, number {request.request_id[:8]}."
    return orjson.dumps({key: f"{what}, cell {key} of {request.request_id[:8]}." for key in request.json_keys}).decode()


def reply(
    request: ChatRequest, text: str | None, error: str | None = None, endpoint: str = "e1", finish: str = "stop"
) -> ChatReply:
    return ChatReply(request.request_id, text, None if error else finish, error, 10, 5, 1.0, endpoint, time.time())


class Scripted:
    """answer(request) gives a text, a ChatReply, or an exception to be raised. It may be changed while it runs."""

    kind = "openai"

    def __init__(self, answer: Callable[[ChatRequest], Any] = good, concurrency: int = 8, delay_s: float = 0.0) -> None:
        self.answer, self.concurrency, self.delay_s = answer, concurrency, delay_s
        self.asked: list[ChatRequest] = []
        self.sessions = self.in_flight = self.most_in_flight = self.settled = 0
        self.doubted: set[str] = set()
        self.found: list[Revocation] = []
        """Revocations that the next `revoked` tells."""
        self.settling: list[list[Revocation]] = []
        """What each further `settle` returns; nothing after the last."""

    def session(self) -> Scripted:
        self.sessions += 1
        return self

    async def __aenter__(self) -> Scripted:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def ask(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.delay_s)
            said = self.answer(request)
        finally:
            self.in_flight -= 1
        if isinstance(said, BaseException):
            raise said
        return said if isinstance(said, ChatReply) else reply(request, said)

    def revoked(self) -> Sequence[Revocation]:
        found, self.found = self.found, []
        return found

    second_in_line = False

    async def settle(self) -> Sequence[Revocation]:
        self.settled += 1
        return self.settling.pop(0) if self.settling else []

    def doubt(self, endpoints: Collection[str]) -> None:
        self.doubted |= set(endpoints)

    def metrics(self) -> dict[str, float | int | str]:
        return {"canary_requests": 3, "retries": 1}

    def take(self) -> list[ChatRequest]:
        """What was asked since the last take."""
        asked, self.asked = self.asked, []
        return asked
