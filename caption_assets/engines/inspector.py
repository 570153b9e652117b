"""Asks endpoints canaries and draws the conclusions: up, away, or a liar that is put out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from caption_assets.engines.base import ChatReply, ChatRequest
from caption_assets.engines.canaries import FORMS, Canary, Form, form_of, make_canary, read_canary
from caption_assets.engines.client import Came, Outcome
from caption_assets.engines.endpoint import Endpoint, Pace, State, Verdict
from caption_assets.engines.verdicts import Court

log = logging.getLogger(__name__)


class Inspector:
    """The canaries of one session.

    endpoints: the session's, filled by it; put_out(endpoint, why, lied): takes one out of the session; changed(): an endpoint's
    state may be another now.
    """

    def __init__(
        self,
        court: Court,
        pace: Pace,
        timeout_s: float,
        put_out: Callable[[Endpoint, str, bool], None],
        changed: Callable[[], None],
        first_number: int,
    ) -> None:
        self.endpoints: Sequence[Endpoint] = ()
        self.canaries = 0
        self.slowest_s = 0.0
        self._court, self._pace, self._timeout_s = court, pace, timeout_s
        self._put_out, self._changed = put_out, changed
        self._samplings: dict[Form, dict[str, Any]] = {}
        self._numbers: dict[tuple[int, Form], int] = {}
        self._first_number = first_number

    def see(self, request: ChatRequest) -> None:
        """Canaries take the strongest form of the session's own requests, and their sampling."""
        form = form_of(request)
        known = self._samplings.get(form)
        if known is None or known.get("max_tokens", 0) < request.sampling.get("max_tokens", 0):
            self._samplings[form] = dict(request.sampling)

    def note(self, endpoint: Endpoint, request: ChatRequest, reply: ChatReply) -> None:
        """A real reply: how slow answers are now, and whether the endpoint says the same over and over."""
        self.slowest_s = max(reply.latency_ms / 1000, self.slowest_s * 0.995)
        if reply.error is None:
            self._court.note(endpoint.url, form_of(request), reply.reply)

    @property
    def stall_s(self) -> float:
        """An endpoint that owes an answer for so long, and has answered nothing since, is looked at."""
        if not self.slowest_s:
            return self._timeout_s
        return min(self._timeout_s, max(self._pace.stall_s, self._pace.stall_factor * self.slowest_s))

    def begin(self, endpoint: Endpoint) -> asyncio.Task[Verdict]:
        """A check of the endpoint, unless one is under way."""
        if endpoint.check is None or endpoint.check.done():
            endpoint.check_sent = time.monotonic()
            endpoint.check = asyncio.create_task(self._check(endpoint))
        return endpoint.check

    async def verify(self, endpoint: Endpoint, after: float) -> Verdict:
        """The verdict of a check whose canary was sent after that time (monotonic)."""
        while True:
            verdict = await asyncio.shield(self.begin(endpoint))
            if endpoint.check_sent >= after:
                return verdict

    async def _check(self, endpoint: Endpoint) -> Verdict:
        try:
            verdict = await self._hear(endpoint, len(endpoint.unproven))
        finally:
            endpoint.checked = True
        self._changed()
        return verdict

    async def _hear(self, endpoint: Endpoint, answers: int) -> Verdict:
        """One canary; in a fleet two for a new member, and two of single pictures: one colour is named by chance.

        After a reproach two more, and a second one is enough.
        """
        form = self._form
        needed = 2 if len(self.endpoints) > 1 and (form == "single" or not endpoint.passed) else 1
        reproaches = good = 0
        while good < needed:
            canary = self._next(endpoint, form)
            outcome = await self._ask(endpoint, canary)
            if outcome.came is Came.DENIED:
                self._put_out(endpoint, outcome.message, False)
                return Verdict.OUT
            if outcome.reply is None:
                self._away(endpoint, outcome)
                return Verdict.AWAY
            endpoint.spoke()
            reproach = self._reproach(endpoint, canary, outcome)
            if reproach is None and outcome.came is Came.REFUSED:
                endpoint.come_up()
                return Verdict.REFUSED
            if reproach is None:
                good += 1
                continue
            reproaches, needed = reproaches + 1, 2
            if reproaches == 2:
                self._put_out(endpoint, reproach, True)
                return Verdict.OUT
        endpoint.passed = True
        endpoint.come_up()
        if all(e.checked or e is endpoint for e in self.endpoints):
            # Before everybody was heard nobody knows how well this model can do, so nothing is proven yet.
            endpoint.proven(answers)
        return Verdict.GOOD

    @property
    def _form(self) -> Form:
        return max(self._samplings, key=FORMS.index, default="grid")

    def doubts(self, endpoint: Endpoint) -> bool:
        """Whether its last answer looks bad now, after what others have answered since."""
        return self._court.reproach(endpoint.url, self._form) is not None

    def _next(self, endpoint: Endpoint, form: Form) -> Canary:
        number = self._numbers.get((endpoint.index, form), self._first_number)
        self._numbers[endpoint.index, form] = number + 1
        return make_canary(form, number, self._samplings.get(form, {"max_tokens": 512}))

    def _reproach(self, endpoint: Endpoint, canary: Canary, outcome: Outcome) -> str | None:
        if outcome.came is Came.REFUSED:
            accepted = self._court.baseline(canary.form).accepts
            return f"refuses a canary that the model has accepted before: {outcome.message}" if accepted else None
        assert outcome.reply is not None
        self._court.hear(endpoint.url, canary.form, read_canary(canary, outcome.reply))
        for other in self.endpoints:  # what was heard may show others in another light
            if other is not endpoint and other.state is State.UP and not other.checking and self.doubts(other):
                other.suspect = True
                self.begin(other)
        return self._court.reproach(endpoint.url, canary.form)

    def _away(self, endpoint: Endpoint, outcome: Outcome) -> None:
        endpoint.leave_alone(outcome.message)
        others = any(other.state is State.UP for other in self.endpoints)
        if outcome.came is Came.TIMEOUT and others:
            endpoint.cut_flights()

    async def _ask(self, endpoint: Endpoint, canary: Canary) -> Outcome:
        """The canary's outcome; throttles are waited for."""
        give_up = time.monotonic() + self._pace.throttled_s
        while True:
            await asyncio.sleep(max(0.0, endpoint.cool_until - time.monotonic()))
            outcome = await self._outcome(endpoint, canary)
            if outcome.came is not Came.THROTTLED or time.monotonic() > give_up:
                return outcome
            endpoint.throttled(outcome.retry_after)

    async def _outcome(self, endpoint: Endpoint, canary: Canary) -> Outcome:
        """Of one try. An endpoint that meanwhile owes real answers, too, is not waited for longer than these."""
        self.canaries += 1
        task, sent = asyncio.create_task(endpoint.client.ask(canary.request, canary=True)), time.monotonic()
        try:
            while not task.done():
                timeout_s = min(self._timeout_s, max(self._pace.canary_timeout_s, self._pace.stall_factor * self.slowest_s))
                if endpoint.suspect:
                    timeout_s = self.stall_s
                left_s = sent + timeout_s - time.monotonic()
                if left_s <= 0:
                    return Outcome(Came.TIMEOUT, f"{endpoint.url}: no answer to a canary within {timeout_s:.3g} s")
                await asyncio.wait({task}, timeout=min(left_s, self._pace.tick_s))
            return task.result()
        finally:
            task.cancel()
