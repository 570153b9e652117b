"""One endpoint as a session sees it: whether it is up, how much it takes at a time, what it answered since its last canary."""

from __future__ import annotations

import asyncio
import enum
import random
import time
from dataclasses import dataclass, field

from caption_assets.engines.client import Client, Outcome
from caption_assets.engines.seats import Seats


@dataclass(frozen=True)
class Pace:
    """When things happen, in seconds and answers.

    A canary is due after first_canary answers without any, then after canary_every, or after canary_s with at least canary_least
    of them. After breaker_faults faults in a row an endpoint is left alone for backoff_s, then twice as long each time; after
    lost_s, where others are there, what it owes proof for is asked elsewhere. outage_s: without any usable endpoint for so long,
    the engine is down (never_s where none ever answered); throttled_s: the same where all of them only throttle. An endpoint
    is looked at when it owes an answer for stall_s and stall_factor times the slowest answer of late. trust_s: so long after a
    good canary a new session does not ask another before it begins.
    """

    first_canary: int = 32
    canary_every: int = 200
    canary_s: float = 60
    canary_least: int = 20
    canary_timeout_s: float = 60
    breaker_faults: int = 3
    backoff_s: float = 0.5
    backoff_most_s: float = 30
    outage_s: float = 120
    never_s: float = 20
    throttled_s: float = 900
    stall_s: float = 5
    stall_factor: float = 4
    lost_s: float = 10
    trust_s: float = 60
    tick_s: float = 0.2


class State(enum.Enum):
    """NEW: has to answer canaries before it is asked anything real. DOWN: comes back by a canary. OUT: for this session."""

    NEW = "new"
    UP = "up"
    DOWN = "down"
    OUT = "out"


class Verdict(enum.Enum):
    """What a check says. REFUSED: canaries, as far as anybody knows, are not for this model. AWAY: no answer."""

    GOOD = "good"
    REFUSED = "refused"
    AWAY = "away"
    OUT = "out"


@dataclass(eq=False, slots=True)
class Flight:
    """One request under way."""

    task: asyncio.Task[Outcome]
    started: float


@dataclass(eq=False)
class Endpoint:
    """most: requests in flight at a time at best; the limit lies below it while the endpoint throttles or fails. seats: the same
    over all sessions.

    unproven: (request_id, whether the reply is an error) of what it answered since its last good canary was sent; since_check:
    answers since its last check of any result. checked, passed: whether a check has ended, ended well. suspect: it owes answers,
    so it gets no more requests before it has answered a canary. coming_back, reviving: somebody tries to have it back, its
    server is being started. doubted: what it answered in an earlier session is unproven.
    """

    client: Client
    most: int
    pace: Pace
    state: State
    limit: float = 0
    index: int = 0
    flights: set[Flight] = field(default_factory=set)
    seats: Seats = field(init=False)
    unproven: list[tuple[str, bool]] = field(default_factory=list)
    doubted: bool = False
    check: asyncio.Task[Verdict] | None = None
    check_sent: float = 0
    since_check: int = 0
    checked: bool = False
    passed: bool = False
    coming_back: bool = False
    reviving: bool = False
    suspect: bool = False
    last_good: float = 0
    last_answer: float = 0
    ever_answered: bool = False
    outages: int = 0
    faults_in_a_row: int = 0
    refusals_in_a_row: int = 0
    cool_until: float = 0
    retry_at: float = 0
    down_at: float = 0
    why: str = ""
    _backoff: float = 0
    _growing: bool = True
    _lowered_at: float = 0
    _latency_s: float = 0

    def __post_init__(self) -> None:
        self.limit = self.limit or float(self.most)
        self.seats = Seats(self.url, self.most)
        self.last_good = self.last_answer = time.monotonic()

    @property
    def url(self) -> str:
        return self.client.url

    def moved(self, client: Client) -> None:
        """It is at another address now."""
        self.client = client
        self.seats.close()
        self.seats = Seats(self.url, self.most)

    def look_for_seats(self) -> None:
        """Others may have left some. While they fill it, its silence says nothing about it."""
        if self.seats.full:
            self.seats.full = False
            if not self.flights:
                self.last_answer = time.monotonic()

    @property
    def free(self) -> int:
        """Requests it may be sent now."""
        if self.state is not State.UP or self.suspect or self.seats.full or self.cool_until > time.monotonic():
            return 0
        return max(0, int(self.limit) - len(self.flights))

    @property
    def checking(self) -> bool:
        return self.check is not None and not self.check.done()

    @property
    def owes_proof(self) -> bool:
        return self.state is not State.OUT and (self.doubted or bool(self.unproven))

    @property
    def canary_due(self) -> bool:
        if self.refusals_in_a_row >= 5 or self.since_check >= (
            self.pace.canary_every if self.checked else self.pace.first_canary
        ):
            return True
        return self.since_check >= self.pace.canary_least and time.monotonic() - self.last_good > self.pace.canary_s

    def answered(self, request_id: str, error: bool) -> None:
        """A reply of its own, good or an error that will stand in the records."""
        self.unproven.append((request_id, error))
        self.since_check += 1
        self.refusals_in_a_row = self.refusals_in_a_row + 1 if error else 0
        self.spoke()

    def spoke(self) -> None:
        self.last_answer = time.monotonic()
        self.ever_answered = True
        self.faults_in_a_row = 0

    def grow(self, latency_s: float, timeout_s: float) -> None:
        """An answer came: a little more at a time, or less where answers have become slow enough to run into the time-out."""
        self._latency_s += (latency_s - self._latency_s) / 8
        if latency_s > timeout_s / 2:
            self.lower(0.8)
            return
        self.limit = min(self.most, self.limit + (1 if self._growing else 1 / self.limit))
        if time.monotonic() - self._lowered_at > 60:
            self._backoff = 0

    def lower(self, factor: float) -> None:
        """Less at a time; troubles of requests that were under way together count once."""
        self._growing = False
        now = time.monotonic()
        if now - self._lowered_at >= self._latency_s:
            self.limit, self._lowered_at = max(1.0, self.limit * factor), now

    def throttled(self, retry_after: float | None) -> None:
        """429: wait as long as it says."""
        pause = random.uniform(0.2, 0.6) if retry_after is None else min(retry_after, 300.0)
        self.cool_until = max(self.cool_until, time.monotonic() + pause)
        self.lower(0.7)
        self.ever_answered = True

    def fault(self, why: str) -> None:
        """No answer; some in a row and it is left alone."""
        self.faults_in_a_row += 1
        self.why = why
        self.lower(0.7)
        if self.faults_in_a_row >= self.pace.breaker_faults:
            self.leave_alone(why)

    def leave_alone(self, why: str) -> None:
        """DOWN until a canary is answered; each time for twice as long. Faults of the same moment count once."""
        if self.state is State.OUT or (self.state is State.DOWN and time.monotonic() < self.retry_at):
            return
        if self.state is State.UP:
            self.outages += 1
            self.down_at = time.monotonic()
        self.why = why
        self.state = State.DOWN
        self._backoff = min(self.pace.backoff_most_s, max(self.pace.backoff_s, self._backoff * 2))
        self.retry_at = time.monotonic() + self._backoff * random.uniform(0.8, 1.2)

    def come_up(self) -> None:
        """A check ended well, so it may be asked; not yet that its replies stand."""
        if self.state is State.DOWN:
            self.limit, self._growing = max(1.0, self.most / 8), True
            self._lowered_at = time.monotonic()
        if self.state is not State.OUT:
            self.state = State.UP
        self.suspect = False
        self.since_check = self.refusals_in_a_row = 0
        self.last_good = time.monotonic()

    def proven(self, count: int) -> None:
        """The first `count` of the unproven replies stand."""
        del self.unproven[:count]
        self.doubted = False

    def cut_flights(self) -> None:
        """Takes its requests back, to be asked elsewhere."""
        for flight in self.flights:
            flight.task.cancel()
