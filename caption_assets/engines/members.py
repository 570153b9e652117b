"""The endpoints of a session: who waits for a seat at one, who has been put out, and what has to be asked again therefore."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection

from caption_assets.engines.base import EngineDown, Revocation, WrongSettings
from caption_assets.engines.endpoint import Endpoint, State
from caption_assets.engines.seats import Leave

log = logging.getLogger(__name__)


class Members:
    """Filled when the session starts. down: why the engine is given up, once it is; counts: figures for the metadata."""

    def __init__(self, condemn: Callable[[int], None]) -> None:
        self.endpoints: list[Endpoint] = []
        self.counts: Counter[str] = Counter()
        self.liars: list[str] = []
        self.down: EngineDown | None = None
        self._condemn = condemn
        self._revoked: list[Revocation] = []
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def up(self) -> list[Endpoint]:
        """Those that may be asked, if perhaps not at this moment."""
        return [e for e in self.endpoints if e.state is State.UP and not e.suspect]

    @property
    def waiting(self) -> bool:
        return bool(self._waiters)

    def check(self) -> None:
        """Raises EngineDown when the engine is given up."""
        if self.down:
            raise type(self.down)(str(self.down))  # a new one each time: one that many tasks raise grows a traceback of them all

    async def seat(self, avoid: Collection[Endpoint]) -> tuple[Endpoint, Leave]:
        """A seat at the least loaded endpoint that takes one more, once there is one; at one to be avoided only where no other is
        up. Whoever got it calls Leave when the request is over.

        Raises EngineDown when the engine is given up.
        """
        while True:
            self.check()
            up = self.up
            free = [e for e in ([e for e in up if e not in avoid] or up) if e.free]
            for endpoint in sorted(free, key=lambda e: len(e.flights) / e.limit):
                if leave := endpoint.seats.take():
                    return endpoint, leave
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self.wake()  # it was woken, and leaves: the seat is another's
                raise

    def wake(self) -> None:
        """Lets as many waiters look again as there are seats."""
        if not self._waiters:
            return
        free = len(self._waiters) if self.down else sum(e.free for e in self.endpoints)
        while self._waiters and free > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1

    def put_out(self, endpoint: Endpoint, why: str, lied: bool) -> None:
        """For the rest of the session; what it answered since its last good canary is revoked."""
        if endpoint.state is State.OUT:
            return
        log.warning("endpoint %s is put out: %s", endpoint.url, why)
        endpoint.state, endpoint.why = State.OUT, f"{endpoint.url} {why}" if lied else why
        endpoint.cut_flights()
        if lied:
            self.liars.append(endpoint.url)
            self._condemn(endpoint.index)
        self.revoke(endpoint)
        self.wake()
        if all(e.state is State.OUT for e in self.endpoints):
            self._give_up_on_all()

    def revoke(self, endpoint: Endpoint) -> None:
        """Everything unproven of this endpoint has to be asked again; what it answered in an earlier session, too."""
        if endpoint.unproven or endpoint.doubted:
            self._revoked.append(Revocation(endpoint.url, tuple(request_id for request_id, _ in endpoint.unproven)))
            self.counts["revoked"] += len(endpoint.unproven)
        endpoint.proven(len(endpoint.unproven))

    def revoked(self) -> list[Revocation]:
        """Revocations since the last call."""
        revoked, self._revoked = self._revoked, []
        return revoked

    def _give_up_on_all(self) -> None:
        """Nobody is left: where none has ever answered, the settings are wrong."""
        whys = "; ".join(dict.fromkeys(e.why for e in self.endpoints if e.why))
        if self.liars or any(e.ever_answered for e in self.endpoints):
            self.give_up(EngineDown(f"no endpoint is left; {whys}"))
        else:
            self.give_up(WrongSettings(f"{whys}. Look at engine.endpoints, engine.model and engine.api_key_env"))

    def give_up(self, what: str | EngineDown) -> None:
        """From now on every ask raises EngineDown; requests under way are taken back."""
        if self.down is None:
            whys = dict.fromkeys(e.why for e in self.endpoints if e.why)
            self.down = what if isinstance(what, EngineDown) else EngineDown("; ".join((what, *whys)))
            for endpoint in self.endpoints:
                endpoint.cut_flights()
        self.wake()
