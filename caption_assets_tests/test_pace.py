"""The time left is told within a tenth on a steady engine, from 5 % on: with a slow start, resumed shards, short last shards, two
at a time, and where nobody knows beforehand how many records there are."""

import pytest

from caption_assets.pace import Outlook, Pace, rate_until


def test_the_start_of_the_engine_is_no_work():
    pace = Pace()
    for second in range(10):
        pace.at(300 + second, 50 + 100 * second)
    assert pace.rate == pytest.approx(100) and pace.average == pytest.approx(100)
    assert pace.left(500) == pytest.approx(5) and pace.left(-3) == 0


def test_nothing_is_said_before_anything_is_known():
    pace = Pace()
    assert (pace.rate, pace.average, pace.left(5)) == (None, None, None)
    pace.at(1, 10)
    pace.at(1.1, 10)
    assert pace.rate is None and pace.left(5) is None
    pace.at(9, 10)
    assert pace.rate is None, "it stands still"


def test_a_new_pace_is_noticed_and_the_average_remembers():
    pace = Pace()
    for second in range(1000):
        pace.at(second, min(second, 500) * 10 + max(0, second - 500) * 30)
    assert pace.rate == pytest.approx(30, rel=0.01) and 15 < pace.average < 25


def test_what_was_before_can_be_forgotten_by_all_but_the_average():
    pace = Pace()
    for second in range(40):
        pace.at(second, second)
    pace.forget()
    assert pace.rate is None
    for second in range(40, 45):
        pace.at(second, 39 + (second - 39) * 20)
    assert pace.rate == pytest.approx(20) and pace.left(100) == pytest.approx(5)
    assert pace.average == pytest.approx(139 / 44)


def test_days_of_counting_take_little_memory():
    pace = Pace()
    for second in range(100_000):
        pace.at(second, second * 7)
    assert len(pace._seen) <= 513 and pace.rate == pytest.approx(7)


class Loop:
    """Shards asked one second at a time by an engine of a steady rate, which gives its time to the shard that began first. Before
    it is asked a shard is prepared, after it merged; `at_once` at a time."""

    def __init__(self, sizes, rate=100.0, prepare=3.0, merge=2.0, at_once=2, expected=None, engine_start=20.0, seconds=1.0):
        self.sizes, self.rate, self.prepare, self.merge = dict(enumerate(sizes)), rate, prepare, merge
        self.at_once, self.engine_start, self.seconds = at_once, engine_start, seconds
        self.outlook = Outlook({str(n): size if expected is None else expected(size) for n, size in self.sizes.items()})

    def said(self):
        """(now, share done, time left as told) and the time of the end."""
        now, waiting, work, done = 0.0, list(self.sizes), {}, dict.fromkeys(self.sizes, 0.0)
        told = []
        while waiting or work:
            while waiting and len(work) < self.at_once:
                work[waiting.pop(0)] = {"ready": now + self.prepare, "merged": None}
            now += self.seconds
            free = self.rate * self.seconds if now > self.engine_start else 0.0
            for shard in list(work):
                state, got = work[shard], 0.0
                if state["merged"] is None and now >= state["ready"]:
                    got = min(free, self.sizes[shard] - done[shard])
                    free -= got
                    done[shard] += got
                    if done[shard] >= self.sizes[shard]:
                        state["merged"] = now + self.merge
                    if done[shard]:
                        self.outlook.progress(now, str(shard), done[shard], self.sizes[shard])
                elif state["merged"] is not None and now >= state["merged"]:
                    del work[shard]
                    self.outlook.ended(now, str(shard), True)
            left = self.outlook.left(now)
            if left is not None:
                told.append((now, sum(done.values()) / sum(self.sizes.values()), left))
        return told, now


CASES = {
    "equal shards": {"sizes": [1000] * 8},
    "one at a time": {"sizes": [3000] * 8, "at_once": 1, "merge": 1.0, "prepare": 1.0},
    "a long start": {"sizes": [1000] * 8, "engine_start": 400.0},
    "a short last shard": {"sizes": [2000] * 5 + [150]},
    "shards that were half done": {"sizes": [900, 600, 2000, 2000, 2000, 900]},
    "nobody knows how many (tars)": {"sizes": [1000] * 10, "expected": lambda size: None},
    "half of the records are duplicates": {"sizes": [1000] * 10, "expected": lambda size: 2 * size},
    "one large shard": {"sizes": [20_000]},
}


@pytest.mark.parametrize("name", CASES)
def test_within_a_tenth_from_5_percent_on(name):
    within_a_tenth(0.05, *Loop(**CASES[name]).said())


def test_within_a_tenth_from_15_percent_on_where_preparing_takes_longer_than_asking():
    """That the engine will have to wait shows only when it first does."""
    within_a_tenth(0.15, *Loop([200] * 60, prepare=6.0).said(), slack=6.0)


def within_a_tenth(since, told, end, slack=3.0):
    looked = [(now, left) for now, share, left in told if share >= since]
    assert looked and looked[0][0] < end * 0.9
    for now, left in looked:
        assert abs(left - (end - now)) <= max(0.1 * (end - now), slack), (now, left, end - now)


def test_a_shard_that_failed_is_not_waited_for():
    outlook = Outlook({"a": 1000, "b": 1000})
    for second in range(6):
        outlook.progress(second, "a", 100 * second + 100, 1000)
    outlook.ended(6, "a", False)
    assert outlook.total == 1600 and outlook.left(6) == pytest.approx(10)


def test_shards_that_ask_nothing_are_counted_by_themselves():
    outlook = Outlook(dict.fromkeys("abcdef", 0))
    assert outlook.left(0) is None
    for second, shard in enumerate("abc"):
        outlook.ended(2.0 * second, shard, True)
    assert outlook.left(4) == pytest.approx(6)


def test_many_shards_are_looked_over_quickly():
    outlook = Outlook({str(n): 100_000.0 for n in range(100_000)})
    for second in range(5):
        outlook.progress(second, "7", second * 100, 100_000)
    assert outlook.left(5) == pytest.approx(1e8, rel=0.01)


def test_what_was_done_side_by_side_adds_up():
    assert rate_until(100, 50, [(0, 100, 1000), (60, 80, 400)]) == pytest.approx(10 + 8)
    assert rate_until(100, 500, [(50, 100, 1000)]) == pytest.approx(20), "only since it began"
    assert rate_until(100, 50, [(90, 110, 100)]) == pytest.approx(5), "half of it was done by then"
    assert rate_until(100, 50, [(0, 40, 1000)]) is None and rate_until(100, 50, []) is None
