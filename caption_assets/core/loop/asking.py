"""The event loop of one shard: takes requests from the feed, keeps the engine busy, hands replies to the store.

Three parts overlap and the slowest alone sets the pace; how long was waited for each is measured where the next request is sent:
for the feed (nothing to send), for the engine (all its seats are taken), for the store (too much is unstored).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from caption_assets.core.faults import Fault
from caption_assets.core.loop.feeding import Fed
from caption_assets.core.loop.handoff import Handoff
from caption_assets.core.loop.storing import CHUNK_ROWS, StoreThread
from caption_assets.core.owed.answered import is_transient
from caption_assets.core.owed.requests import Ask
from caption_assets.core.owed.shardjob import ShardJob
from caption_assets.core.replies.chunks import ReplyRow
from caption_assets.engines.base import ChatReply, Revocation, Session

FEED_BOUND = 64
TICK_S = 0.25


@dataclass
class Tally:
    """What was done so far. waits: seconds, by part."""

    requests: int = 0
    records: int = 0
    faults: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """At work, without the time in which the engine started."""
    waits: dict[str, float] = field(default_factory=lambda: {"feed": 0.0, "engine": 0.0, "store": 0.0})
    revoked: int = 0

    @property
    def bottleneck(self) -> str | None:
        """The part that was waited for longest."""
        return max(self.waits, key=lambda part: self.waits[part]) if any(self.waits.values()) else None

    @property
    def bottleneck_share(self) -> float | None:
        """How much of the time was spent waiting for it."""
        if not self.bottleneck or self.seconds <= 0:
            return None
        return round(min(1.0, self.waits[self.bottleneck] / self.seconds), 3)


class Asking:
    """One shard's traffic with one session. To be made and used inside the event loop."""

    def __init__(self, job: ShardJob, session: Session, store: Callable[[Asking], StoreThread], tally: Tally) -> None:
        self._job, self.session, self.tally = job, session, tally
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unstored = 0
        """Requests that would be paid again after a kill: in flight, or answered and not yet durable."""
        self.liars: set[str] = set()
        """Endpoints found lying so far."""
        self._error: BaseException | None = None
        self._feed: Handoff[Fed] | None = None
        self.store = store(self)
        self._watch = asyncio.create_task(self._tick())

    async def drive(self, make: Callable[[], Iterable[Fed]]) -> None:
        """Asks everything that the feed yields, until it is answered and stored. Raises what went wrong first, after storing what
        was answered."""
        started, self._feed = time.monotonic(), Handoff(make, FEED_BOUND)
        try:
            while (fed := await self._next()) is not None:
                await self._until("engine", lambda: len(self._tasks) < max(1, self.session.concurrency))
                await self._until("store", lambda: self._unstored < max(1, self.session.concurrency) + CHUNK_ROWS)
                self._send(fed)
            await self._until("engine", lambda: not self._tasks)
            await self.flush()
        finally:
            self.tally.seconds += time.monotonic() - started
            await self._feed.close()
            if self._tasks:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _next(self) -> Fed | None:
        assert self._feed is not None
        started = time.monotonic()
        try:
            return await self._feed.next()
        finally:
            self.tally.waits["feed"] += time.monotonic() - started

    def _send(self, fed: Fed) -> None:
        self._unstored += 1
        if fed.request is None:
            assert fed.fault is not None
            self._keep(fed.ask, unread(fed.ask, fed.fault))
            return
        task = self._loop.create_task(self._ask(fed))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _ask(self, fed: Fed) -> None:
        assert fed.request is not None
        asked = time.monotonic()
        reply = await self.session.ask(fed.request)
        if self.tally.requests == 0:  # the first one waits for the engine to start, which is not its work
            self.tally.seconds -= max(0.0, time.monotonic() - asked - reply.latency_ms / 1000)
        self.tally.requests += 1
        self._keep(fed.ask, reply)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self._unstored -= 1
        elif error := task.exception():
            self._unstored -= 1
            self.fail(error)
        self._changed.set()

    def _keep(self, ask: Ask, reply: ChatReply) -> None:
        job, tally = self._job, self.tally
        tally.records += len(ask.record_ids)
        tally.faults += len(ask.record_ids) if is_transient(reply.error) else 0
        tally.prompt_tokens += reply.prompt_tokens or 0
        tally.completion_tokens += reply.completion_tokens or 0
        self.store.put(reply_row(job, ask, reply, job.recipes[ask.output]))

    async def _until(self, part: str, free: Callable[[], bool]) -> None:
        if self._error:
            raise self._error
        if free():
            return
        started = time.monotonic()
        while not free():
            self._changed.clear()
            await self._changed.wait()
            if self._error:
                raise self._error
        self.tally.waits[part] += time.monotonic() - started

    async def flush(self) -> None:
        """Until everything that was answered is durable."""
        started, done = time.monotonic(), asyncio.Event()
        self.store.flush(partial(self._loop.call_soon_threadsafe, done.set))
        await done.wait()
        self.tally.waits["store"] += time.monotonic() - started
        if self._error:
            raise self._error

    def stored(self, count: int) -> None:
        """Called by the store's thread."""
        self._loop.call_soon_threadsafe(self._stored, count)

    def _stored(self, count: int) -> None:
        self._unstored -= count
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """The first error ends the work."""
        self._error = self._error or error
        if self._feed:
            self._feed.abort(error)
        self._changed.set()

    def store_failed(self, error: BaseException) -> None:
        """Called by the store's thread."""
        self._loop.call_soon_threadsafe(self.fail, error)

    def take_back(self, found: Sequence[Revocation]) -> None:
        """Revokes in the store, at once, what endpoints found lying have answered."""
        self.liars.update(liar.endpoint for liar in found)
        self.revoke([(request, liar.endpoint) for liar in found for request in liar.request_ids])

    def revoke(self, pairs: list[tuple[str, str]]) -> None:
        """(request_id, endpoint) each."""
        if pairs:
            self.tally.revoked += len(pairs)
            self.store.revoke(pairs)

    async def _tick(self) -> None:
        """Revocations are written as soon as they are known, and a fleet that has grown is used."""
        while True:
            await asyncio.sleep(TICK_S)
            self.take_back(self.session.revoked())
            self._changed.set()

    async def close(self) -> None:
        """Stores what waits; a failure of the store comes out of `drive`, not from here."""
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await asyncio.to_thread(self.store.close)


def unread(ask: Ask, fault: Fault) -> ChatReply:
    """What is stored for a picture that could not be read: it travels on to `failed` with its reason."""
    return ChatReply(ask.request_id, None, None, f"{fault.reason}: {fault.detail}", None, None, 0.0, "", time.time())


def reply_row(job: ShardJob, ask: Ask, reply: ChatReply, recipe: str) -> ReplyRow:
    """The stored form of a reply."""
    heard = bool(reply.endpoint)
    return ReplyRow(
        request_id=ask.request_id,
        grid_id=ask.grid_id,
        slots=ask.slots,
        record_ids=ask.record_ids,
        prompt_sha256s=ask.prompt_sha256s,
        output=ask.output,
        recipe=recipe,
        attempt=ask.attempt,
        reply=reply.reply,
        finish_reason=reply.finish_reason,
        error=reply.error,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        latency_ms=reply.latency_ms if heard else None,
        endpoint=reply.endpoint if heard else None,
        model=job.engine.model,
        revision=job.revision,
        sent_at=reply.sent_at,
        run_id=job.run_id,
    )
