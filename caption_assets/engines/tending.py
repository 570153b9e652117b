"""What has to be done while requests run: canaries that are due, endpoints that come back, owe answers, or are all gone."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from caption_assets.engines.backends import Backend, Place
from caption_assets.engines.base import EngineDown
from caption_assets.engines.client import Client
from caption_assets.engines.endpoint import Endpoint, Pace, State, Verdict
from caption_assets.engines.inspector import Inspector
from caption_assets.engines.members import Members

log = logging.getLogger(__name__)

TOUCH_S = 5


class Tender:
    """Looks after the members of one session every tick."""

    def __init__(
        self, members: Members, inspector: Inspector, backend: Backend, pace: Pace, client: Callable[[Place], Client]
    ) -> None:
        self.stop = threading.Event()
        self._members, self._inspector, self._backend, self._pace, self._client = members, inspector, backend, pace, client
        self._down_since: float | None = None
        self._touched = time.monotonic()
        self._returning: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                for endpoint in self._members.endpoints:
                    self._look_at(endpoint)
                self._look_for_outage()
                for endpoint in self._members.endpoints:
                    endpoint.look_for_seats()
                self._members.wake()
                if time.monotonic() - self._touched > TOUCH_S:
                    self._touched = time.monotonic()
                    self._backend.touch()
                await asyncio.sleep(self._pace.tick_s)
        finally:
            self.stop.set()
            for task in self._returning:
                task.cancel()

    def _look_at(self, endpoint: Endpoint) -> None:
        lost = endpoint.state is State.DOWN and time.monotonic() - endpoint.down_at > self._pace.lost_s
        if lost and endpoint.unproven and self._members.up:
            self._members.revoke(endpoint)
        if endpoint.checking and endpoint.state is State.UP:
            endpoint.suspect |= self._stalled(endpoint)
        if endpoint.checking or endpoint.coming_back or self._members.down:
            return
        if endpoint.state is State.NEW:
            self._inspector.begin(endpoint)
        elif endpoint.state is State.DOWN and time.monotonic() >= endpoint.retry_at:
            endpoint.coming_back = True
            task = asyncio.create_task(self._bring_back(endpoint))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)
        elif endpoint.state is State.UP:
            endpoint.suspect = self._stalled(endpoint) or self._inspector.doubts(endpoint)
            if endpoint.suspect or endpoint.canary_due:
                self._inspector.begin(endpoint)

    def _stalled(self, endpoint: Endpoint) -> bool:
        """It owes answers for long, has given none since, and somebody else could give them."""
        if not endpoint.flights or len(self._members.up) < 2:
            return False
        now, patience = time.monotonic(), self._inspector.stall_s
        oldest = min(flight.started for flight in endpoint.flights)
        return now - oldest > patience and now - endpoint.last_answer > patience

    async def _bring_back(self, endpoint: Endpoint) -> None:
        """A server of our own is started again where it has died, or seems well and answers nothing; a canary decides."""
        try:
            if self._backend.owned:
                await self._revive(endpoint)
            verdict = await self._inspector.verify(endpoint, time.monotonic())
            if verdict is Verdict.AWAY and self._backend.owned:
                log.warning("the server at %s runs, but answers nothing: it is ended", endpoint.url)
                self._backend.condemn(endpoint.index)
        except EngineDown as error:
            self._members.give_up(error)
        finally:
            endpoint.coming_back = False

    async def _revive(self, endpoint: Endpoint) -> None:
        endpoint.reviving = True
        try:
            loop = asyncio.get_running_loop()
            place = await loop.run_in_executor(None, self._backend.revive, endpoint.index, self.stop)
        finally:
            endpoint.reviving = False
        if place.url != endpoint.url:
            endpoint.moved(self._client(place))

    def _look_for_outage(self) -> None:
        """Gives the engine up when nothing has been usable for too long."""
        members, now = self._members.endpoints, time.monotonic()
        starting = any(e.reviving for e in members)
        unknown = any(e.state is State.NEW and not e.checked for e in members)
        if any(e.state is State.UP for e in members) or starting or unknown:
            self._down_since = None
            idle = self._members.waiting and not any(e.flights for e in members)
            if idle and not starting and members and now - max(e.last_answer for e in members) > self._pace.throttled_s:
                self._members.give_up(f"every endpoint has only throttled for {self._pace.throttled_s:g} s")
            return
        self._down_since = self._down_since or now
        patience = self._pace.outage_s if any(e.ever_answered for e in members) else self._pace.never_s
        if now - self._down_since > patience:
            self._members.give_up(f"no endpoint has answered for {patience:g} s")
