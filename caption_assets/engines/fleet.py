"""Many endpoints, or one, as one engine: requests go to whoever is fit, and come back right or are asked elsewhere.

Kind vllm and kind openai differ only in where the endpoints come from. What an endpoint accepts, and what the model has been
seen to do, is kept by the engine as long as the process runs; everything else belongs to a session.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Sequence

from caption_assets.config import EngineConfig
from caption_assets.engines.backends import Backend, Place
from caption_assets.engines.base import ChatReply, ChatRequest, EngineDown, Revocation
from caption_assets.engines.canaries import Form
from caption_assets.engines.client import Came, Client, Outcome, http_session
from caption_assets.engines.endpoint import Endpoint, Flight, Pace, State, Verdict
from caption_assets.engines.inspector import Inspector
from caption_assets.engines.members import Members
from caption_assets.engines.payload import Dialect
from caption_assets.engines.seats import Leave
from caption_assets.engines.tending import Tender
from caption_assets.engines.verdicts import Baseline, Court

TRIES = {Came.TIMEOUT: 2, Came.FAULT: 3, Came.LOST: 8}
"""After so many of one kind it is the request's own fault, if the endpoint then answers a canary."""
MOST_TRIES = 24


class FleetEngine:
    """Endpoints that speak OpenAI's chat API. Sessions may run side by side, each in an event loop of its own."""

    def __init__(self, config: EngineConfig, backend: Backend, pace: Pace | None = None) -> None:
        self.kind: str = config.kind
        self.config, self.backend, self.pace = config, backend, pace or Pace()
        self.baselines: dict[Form, Baseline] = {}
        self.dialects: dict[str, Dialect] = {}
        self.passed_at: dict[str, float] = {}
        self.sessions = 0

    def session(self) -> FleetSession:
        """`async with engine.session() as session:`; nothing is started or asked before the first request."""
        self.sessions += 1
        return FleetSession(self)

    def close(self) -> None:
        """Nothing is held between sessions; servers stop by themselves when they are idle."""


class FleetSession:
    """One shard's use of the fleet; see base.Session."""

    def __init__(self, engine: FleetEngine) -> None:
        self._engine, self._config, self._pace = engine, engine.config, engine.pace
        self._timeout_s = engine.config.request_timeout_s
        self._members = Members(engine.backend.condemn)
        self._counts = self._members.counts
        self._inspector = Inspector(
            Court(engine.baselines), engine.pace, self._timeout_s, self._members.put_out, self._members.wake, 2 * engine.sessions
        )
        self._tender = Tender(self._members, self._inspector, engine.backend, engine.pace, self._client)
        self._doubted: set[str] = set()
        self._caches: asyncio.Task[dict[str, tuple[float, float]]] | None = None
        self._cache_hits: float | None = None
        self._starting: asyncio.Task[None] | None = None
        self._tending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> FleetSession:
        self._http = http_session()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tender.stop.set()
        endpoints = self._members.endpoints
        tasks = [t for t in (self._starting, self._tending, self._caches, *(e.check for e in endpoints)) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for endpoint in endpoints:
            endpoint.cut_flights()
            endpoint.seats.close()
            self._engine.dialects[endpoint.url] = endpoint.client.dialect
            if endpoint.state is State.OUT:
                self._engine.passed_at.pop(endpoint.url, None)
        await self._http.close()

    @property
    def concurrency(self) -> int:
        """Requests that may usefully be in flight now."""
        if not self._members.endpoints:
            return self._config.concurrency * self._engine.backend.size
        return max(1, sum(int(e.limit) for e in self._members.up))

    @property
    def second_in_line(self) -> bool:
        """See base.Session."""
        up = self._members.up
        return bool(up) and all(e.seats.second_in_line for e in up)

    async def ask(self, request: ChatRequest) -> ChatReply:
        """See base.Session. Cancelling it takes the request back from the endpoint."""
        self._inspector.see(request)
        await self._started()
        tries: Counter[Came] = Counter()
        avoid: set[Endpoint] = set()
        while True:
            endpoint, leave = await self._members.seat(avoid)
            outcome = await self._fly(endpoint, request, leave)
            if outcome is not None and outcome.reply is not None:
                return self._accept(endpoint, request, outcome.reply)
            self._counts["retries"] += 1
            if outcome is None:
                continue
            if outcome.came is Came.THROTTLED:
                self._counts["throttled"] += 1
                endpoint.throttled(outcome.retry_after)
            elif outcome.came is Came.DENIED:
                self._members.put_out(endpoint, outcome.message, False)
            else:
                avoid.add(endpoint)
                tries[outcome.came] += 1
                if error := await self._unanswered(endpoint, request, outcome, tries):
                    return self._accept(endpoint, request, error)

    async def _fly(self, endpoint: Endpoint, request: ChatRequest, leave: Leave) -> Outcome | None:
        """Sends it; None when it was taken back because the endpoint is away or lies."""
        task = asyncio.create_task(endpoint.client.ask(request))
        flight = Flight(task, time.monotonic())
        endpoint.flights.add(flight)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout_s)
        finally:
            task.cancel()
            endpoint.flights.discard(flight)
            leave()
            self._members.wake()
        if not done:
            return Outcome(Came.TIMEOUT, f"{endpoint.url}: no answer within {self._timeout_s:g} s")
        return None if task.cancelled() or endpoint.state is State.OUT else task.result()

    def _accept(self, endpoint: Endpoint, request: ChatRequest, reply: ChatReply) -> ChatReply:
        endpoint.answered(request.request_id, reply.error is not None)
        if reply.error is None:
            endpoint.grow(reply.latency_ms / 1000, self._timeout_s)
            self._inspector.note(endpoint, request, reply)
        if endpoint.canary_due and endpoint.state is State.UP:
            self._inspector.begin(endpoint)
        return reply

    async def _unanswered(
        self, endpoint: Endpoint, request: ChatRequest, outcome: Outcome, tries: Counter[Came]
    ) -> ChatReply | None:
        """After a fault: the error that becomes the record's, if it is the request's own fault; None to ask elsewhere."""
        failed_at, came = time.monotonic(), outcome.came
        spent = tries[came] >= TRIES[came]
        if came is Came.TIMEOUT:
            self._counts["timeouts"] += 1
            endpoint.lower(0.5)
            spent |= sum(e.state is not State.OUT for e in self._members.endpoints) == 1
        else:
            self._counts["faults"] += 1
            endpoint.fault(outcome.message)
        if came is Came.TIMEOUT and not spent and endpoint.state is not State.OUT:
            self._inspector.begin(endpoint)
        if spent and endpoint.state is not State.OUT:
            verdict = await self._inspector.verify(endpoint, failed_at)
            if verdict is Verdict.GOOD:
                error = f"{'timeout' if came is Came.TIMEOUT else 'model_error'}: {outcome.message}"
                return ChatReply(request.request_id, None, None, error, None, None, 0.0, endpoint.url, time.time())
        if tries.total() >= MOST_TRIES:
            raise EngineDown(f"request {request.request_id} failed {MOST_TRIES} times, the last time so: {outcome.message}")
        return None

    async def _started(self) -> None:
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        if not self._starting.done():
            await asyncio.shield(self._starting)
        self._starting.result()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        places = await loop.run_in_executor(None, self._engine.backend.places, self._tender.stop)
        for index, place in enumerate(places):
            trusted = time.monotonic() - self._engine.passed_at.get(place.url, -1e9) < self._pace.trust_s
            state = State.UP if trusted or len(places) == 1 else State.NEW
            endpoint = Endpoint(
                self._client(place), self._config.concurrency, self._pace, state, index=index, passed=trusted, checked=trusted
            )
            self._members.endpoints.append(endpoint)
        self._inspector.endpoints = self._members.endpoints
        self._caches = asyncio.create_task(self._read_caches())
        self._tending = asyncio.create_task(self._tender.run())

    def _client(self, place: Place) -> Client:
        client = Client(self._http, place.url, self._config.model, place.key, place.key_name)
        client.dialect = self._engine.dialects.get(place.url, client.dialect)
        return client

    async def _read_caches(self) -> dict[str, tuple[float, float]]:
        """Prefix cache counters by endpoint, of those that have them: vLLM's."""
        up = [e for e in self._members.endpoints if e.state is not State.DOWN]
        found = await asyncio.gather(*(e.client.prefix_cache() for e in up))
        return {e.url: counters for e, counters in zip(up, found, strict=True) if counters}

    def revoked(self) -> Sequence[Revocation]:
        """See base.Session. To be looked at also after EngineDown."""
        return self._members.revoked()

    def doubt(self, endpoints: Collection[str]) -> None:
        """See base.Session."""
        self._doubted.update(endpoints)

    async def settle(self) -> Sequence[Revocation]:
        """See base.Session. Raises EngineDown where an endpoint that has to be asked is gone and no other is there."""
        if self._starting is None:
            if not self._doubted & set(self._engine.backend.known()):
                return ()
            await self._started()
        for endpoint in self._members.endpoints:
            endpoint.doubted |= endpoint.url in self._doubted
        self._doubted.clear()
        while owing := [e for e in self._members.endpoints if e.owes_proof]:
            await self._settle(owing)
        await self._note_cache_hits()
        return self.revoked()

    async def _settle(self, owing: Sequence[Endpoint]) -> None:
        """One round of canaries. What they show together counts, so nothing is proven before all were heard."""
        verdicts = await asyncio.gather(*(self._verdict(endpoint, time.monotonic()) for endpoint in owing))
        for endpoint, verdict in zip(owing, verdicts, strict=True):
            if endpoint.state is State.OUT:
                continue
            if verdict is Verdict.REFUSED and any(error for _, error in endpoint.unproven):
                self._members.put_out(endpoint, "refuses canaries as well as requests", True)
            elif verdict is Verdict.REFUSED or (verdict is Verdict.GOOD and not self._inspector.doubts(endpoint)):
                endpoint.proven(len(endpoint.unproven))
                self._engine.passed_at[endpoint.url] = time.monotonic()

    async def _verdict(self, endpoint: Endpoint, begun: float) -> Verdict:
        """Of a canary sent after `begun`. An endpoint that is gone is waited for, but no longer than asking anew takes."""
        while endpoint.owes_proof:
            self._members.check()
            if endpoint.state is State.DOWN and not endpoint.unproven:
                endpoint.doubted = False
            elif endpoint.state is State.DOWN:
                seconds_anew = len(endpoint.unproven) * self._inspector.slowest_s / self.concurrency
                if self._members.up and time.monotonic() - max(begun, endpoint.down_at) > seconds_anew:
                    self._members.revoke(endpoint)
                else:
                    await asyncio.sleep(self._pace.tick_s)
            elif (verdict := await self._inspector.verify(endpoint, begun)) is not Verdict.AWAY:
                return verdict
        return Verdict.OUT

    async def _note_cache_hits(self) -> None:
        before, now = await self._caches if self._caches else {}, await self._read_caches()
        queries, hits = (sum(now[url][n] - counters[n] for url, counters in before.items() if url in now) for n in (0, 1))
        self._cache_hits = hits / queries if queries > 0 else None

    def metrics(self) -> dict[str, float | int | str]:
        """Figures for the metadata; the prefix-cache hit rate is that of this session's time, known after settle()."""
        counts = {name: self._counts[name] for name in ("retries", "throttled", "timeouts", "faults", "revoked")}
        figures: dict[str, float | int | str] = {"canary_requests": self._inspector.canaries, **counts}
        figures["endpoints"] = len(self._members.endpoints)
        figures["outages"] = sum(e.outages for e in self._members.endpoints)
        if self._members.liars:
            figures["quarantined"] = ", ".join(self._members.liars)
        if self._cache_hits is not None:
            figures["prefix_cache_hit_rate"] = round(self._cache_hits, 4)
        return figures
