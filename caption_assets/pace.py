"""How fast work goes and when it will be done, from what was counted so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WINDOW_S = 20.0
MOST = 512
GAP_S, TOLD_EVERY_S = 2.5, 1.0
"""Shards at work tell their progress every second; a longer silence means that none was asked anything."""


class Pace:
    """The pace of one count that grows. Time before the first count is left out: there an engine starts. What is long ago fades:
    the rate is that of the latest half of the time, of WINDOW_S at least."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()
        self._first: tuple[float, float] | None = None

    def at(self, now: float, done: float) -> None:
        """So much was done by now (seconds of any clock)."""
        self._first = self._first or (now, done)
        self._seen.append((now, done))
        begin = now - max(WINDOW_S, (now - self._first[0]) / 2)
        while len(self._seen) > 2 and self._seen[1][0] <= begin:
            self._seen.popleft()
        if len(self._seen) > MOST:
            self._seen = deque([*list(self._seen)[:-1:2], self._seen[-1]])

    def forget(self) -> None:
        """What was so far says nothing about what comes; only the average remembers."""
        while len(self._seen) > 1:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """Per second, lately; None before anything is known."""
        return _slope(self._seen[0], self._seen[-1]) if self._seen else None

    @property
    def average(self) -> float | None:
        """Per second, since the first count."""
        return _slope(self._first, self._seen[-1]) if self._first else None

    def left(self, more: float) -> float | None:
        """Seconds until so much more is done."""
        rate = self.rate
        return max(0.0, more) / rate if rate else None


def _slope(begin: tuple[float, float], end: tuple[float, float]) -> float | None:
    """None where too little was seen to say anything, or nothing moved."""
    seconds, done = end[0] - begin[0], end[1] - begin[1]
    return done / seconds if seconds >= 0.5 and done > 0 else None


@dataclass
class _Shard:
    """expected: answers it was thought to want, None where unknown; said: what it says it wants; done: what it has got."""

    expected: float | None
    said: float | None = None
    done: float = 0.0
    asked_at: float | None = None
    ended: bool = False

    def wants(self, ratio: float) -> float | None:
        """ratio: of what shards say to what was expected of them."""
        if self.ended:
            return self.done
        if self.said is not None:
            return max(self.said, self.done)
        return self.expected * ratio if self.expected else self.expected


class Outlook:
    """When all of several shards will be done, some at a time; from their progress while they are asked.

    Time in which no shard was asked (the next ones were still being prepared) is counted by shard, all other time by answer: so
    small shards before large ones mislead nobody.
    """

    def __init__(self, expected: Mapping[str, float | None]) -> None:
        """expected: answers that each shard wants, 0 where nothing is asked, None where that is not known."""
        self._shards = {shard: _Shard(count) for shard, count in expected.items()}
        self._pace, self._tails = Pace(), list[float]()
        self._first_ended: float | None = None
        self._told_at: float | None = None
        self._idle, self._begun_at_once = 0.0, 0
        """Seconds in which none was asked, and how many shards had begun before the first such time."""

    def progress(self, now: float, shard: str, done: float, total: float | None) -> None:
        """A shard at work has got so many answers of so many."""
        seen = self._shards[shard]
        silent = 0.0 if self._told_at is None else now - self._told_at
        if silent > GAP_S:
            self._begun_at_once = self._begun_at_once or self._begun()
            self._idle += silent - TOLD_EVERY_S
        seen.done, seen.said, seen.asked_at, self._told_at = done, total, now, now
        self._pace.at(now - self._idle, self.done)

    def ended(self, now: float, shard: str, success: bool) -> None:
        """What a failed one still wanted is not waited for."""
        seen = self._shards[shard]
        if success:
            if seen.asked_at is not None:
                self._tails.append(now - seen.asked_at)
            seen.done = seen.wants(self._ratio()) or 0.0
        seen.ended = True
        self._first_ended = now if self._first_ended is None else self._first_ended

    @property
    def done(self) -> float:
        return sum(shard.done for shard in self._shards.values())

    @property
    def total(self) -> float | None:
        """Answers in all; shards that nothing is known of are taken to be like the others. None: nothing is known of any."""
        ratio = self._ratio()
        counts = [shard.wants(ratio) for shard in self._shards.values()]
        known = [count for count in counts if count is not None]
        if not known:
            return None
        asking = [count for count in known if count]
        return sum(known) + (len(counts) - len(known)) * (sum(asking) / len(asking) if asking else 0.0)

    @property
    def rate(self) -> float | None:
        """Answers per second over all shards lately, while any was asked."""
        return self._pace.rate

    def left(self, now: float) -> float | None:
        """Seconds until the last shard has ended: what is still to be asked at the latest pace, and then what a shard takes from
        its last answer to its end. Where nothing is asked: at the pace of the shards themselves. None: it cannot be told yet."""
        total, ended = self.total, sum(shard.ended for shard in self._shards.values())
        if total is None:
            return None
        if not total:
            return self._by_shards(now, ended)
        more = total - self.done
        asking = self._pace.left(more) if more > 0 else 0.0
        return None if asking is None else asking + self._pauses() + self._tail(now)

    def _pauses(self) -> float:
        """Seconds in which no shard will be asked: so many for each that is still to begin as there were for those before."""
        begun = self._begun()
        after = max(begun - self._begun_at_once, self._begun_at_once)
        return self._idle / after * (len(self._shards) - begun) if after else 0.0

    def _begun(self) -> int:
        return sum(shard.ended or shard.asked_at is not None for shard in self._shards.values())

    def _by_shards(self, now: float, ended: int) -> float | None:
        if self._first_ended is None or ended < 2:
            return None
        return (now - self._first_ended) / (ended - 1) * (len(self._shards) - ended)

    def _tail(self, now: float) -> float:
        """The mean of what ended shards took after their last answer; less for the last one, once it has got its own."""
        mean = sum(self._tails) / len(self._tails) if self._tails else 0.0
        still = [shard for shard in self._shards.values() if not shard.ended]
        waited = [now - s.asked_at for s in still if s.asked_at is not None and s.said is not None and s.done >= s.said]
        return max(0.0, mean - min(waited)) if still and len(waited) == len(still) else mean

    def _ratio(self) -> float:
        told = [(shard.said, shard.expected) for shard in self._shards.values() if shard.said and shard.expected]
        return sum(said for said, _ in told) / sum(expected for _, expected in told) if told else 1.0


Span = tuple[float, float, float]
"""(begin, end, count): so much was done between these two times."""


def rate_until(until: float, seconds: float, spans: Iterable[Span]) -> float | None:
    """Per second over the last `seconds` before `until`, or since the first span began; each span's count is spread evenly over
    its time. Spans may overlap: they are of work that was done side by side. None where nothing was done."""
    spans = [span for span in spans if span[0] < until and span[1] > span[0]]
    if not spans:
        return None
    since = max(until - seconds, min(begin for begin, _, _ in spans))
    done = sum(
        count * max(0.0, min(end, until) - max(begin, since)) / (end - begin) for begin, end, count in spans if end > since
    )
    return done / (until - since) if done else None
