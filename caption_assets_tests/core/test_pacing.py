"""How fast a bucket is asked, with a clock that the test moves."""

from __future__ import annotations

import math

import pytest

from caption_assets.core.storage import pacing
from caption_assets.core.storage.pacing import Pace, pace_of, pause


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    return clock


def ask(pace: Pace, clock: Clock, seconds: float, limit: float) -> tuple[int, int]:
    """Asks as fast as it may for so long, of a bucket that answers `limit` requests a second; returns answers and refusals."""
    answers, refusals, allowed, ends = 0, 0, 0.0, clock.now + seconds
    while clock.now < ends:
        step = max(pace.delay(), 1 / 2000)
        clock.now += step
        allowed = min(limit / 10, allowed + step * limit)
        if allowed >= 1:
            allowed -= 1
            answers += 1
            pace.answered()
        else:
            refusals += 1
            pace.refused()
    return answers, refusals


def test_there_is_no_limit_before_the_first_refusal(clock: Clock) -> None:
    pace = Pace("s3://x")
    assert ask(pace, clock, 5, 1e9)[0] == pytest.approx(10_000, abs=2)
    assert pace.rate is None


@pytest.mark.parametrize("limit", [20, 300])
def test_the_rate_finds_what_the_bucket_bears(clock: Clock, limit: int) -> None:
    pace = Pace("s3://x")
    ask(pace, clock, 5, limit)
    answers, refusals = ask(pace, clock, 60, limit)
    assert answers > 0.8 * 60 * limit
    assert refusals < 0.05 * 60 * limit


def test_the_limit_goes_when_the_bucket_bears_more_than_is_asked(clock: Clock) -> None:
    pace = Pace("s3://x")
    ask(pace, clock, 5, 300)
    assert pace.rate is not None
    ask(pace, clock, 60, 1e9)
    assert pace.rate is None


def test_one_bad_key_among_many_good_ones_slows_nobody(clock: Clock) -> None:
    pace = Pace("s3://x")
    for n in range(5000):
        clock.now += 0.001
        pace.refused() if n % 100 == 99 else pace.answered()
    assert pace.rate is None


def test_a_bucket_that_answers_nothing_is_looked_at_now_and_then_and_comes_back(clock: Clock) -> None:
    pace = Pace("s3://x")
    for _ in range(31):
        assert math.isfinite(pace.delay())
        pace.refused()
        clock.now += 4
    assert pace.delay() == 0, "one looks"
    assert [pace.delay() for _ in range(3)] == [math.inf] * 3, "the others fail at once"
    clock.now += 6
    assert pace.delay() == 0
    pace.answered()
    assert math.isfinite(pace.delay())


def test_a_long_silence_alone_is_no_outage(clock: Clock) -> None:
    pace = Pace("s3://x")
    pace.answered()
    clock.now += 10_000
    for _ in range(40):
        pace.refused()
    assert math.isfinite(pace.delay())


def test_pauses_grow_and_are_bounded() -> None:
    pauses = [pause(n) for n in range(1, 7)]
    assert pauses == sorted(pauses)
    assert max(pause(n) for n in range(1, 40)) <= pacing.LONGEST_PAUSE_S


def test_all_threads_of_a_process_share_a_buckets_pace() -> None:
    assert pace_of("http://one", "b") is pace_of("http://one", "b")
    assert pace_of("http://one", "b") is not pace_of("http://two", "b")
