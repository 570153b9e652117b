"""How fast a bucket may be asked, learnt from its answers and shared by all threads of the process.

Additive increase, multiplicative decrease: while more than one request in twenty is refused the rate is halved, every answer
raises it a little, and far above the rate that was refused there is no limit at all. A bucket that has answered nothing for
long is not asked by everyone: whoever comes fails at once, and one request every few seconds looks whether it is back.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time

MIN_RATE = 10.0  # requests/s; whoever is refused pauses by himself as well
REFUSED_SHARE = 0.05
DECREASE_EVERY_S = 0.5  # refusals of requests that were under way together are one piece of news
RECOVERY = 0.05  # of the rate that was refused, per second
WINDOW_S = 1.0
DOWN_AFTER_S = 120.0
DOWN_AFTER_REFUSALS = 30
PROBE_EVERY_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0

log = logging.getLogger(__name__)


class Pace:
    """One bucket's. Callers: `delay()`, sleep that long, ask, then `answered()` or `refused()`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._rate: float | None = None
        self._peak = 0.0
        self._next = 0.0  # when the next request may start
        self._decreased = self._said = 0.0
        self._seen, self._recent, self._recent_refused = time.monotonic(), 0.0, 0.0  # decaying counts
        self._refusals, self._trouble_since, self._probed = 0, 0.0, 0.0
        self.ever_answered = False

    @property
    def rate(self) -> float | None:
        """Requests/s at most, None without a limit."""
        return self._rate

    def delay(self) -> float:
        """Seconds to wait before asking; infinite where the bucket is down and another request is looking."""
        with self._lock:
            now = time.monotonic()
            if self._down(now):
                if now - self._probed < PROBE_EVERY_S:
                    return math.inf
                self._probed = now
                return 0.0
            if self._rate is None:
                return 0.0
            start = max(now, self._next)
            self._next = start + 1 / self._rate
            return start - now

    def answered(self) -> None:
        """The bucket answered, whatever it said of the object."""
        with self._lock:
            self._count(refused=False)
            self._refusals, self.ever_answered = 0, True
            if self._rate is not None:
                self._rate += max(1.0, self._peak * RECOVERY) / self._rate
                if self._rate > 2 * self._peak:
                    self._rate = None

    def refused(self) -> None:
        """It was busy, broken or not to be reached."""
        with self._lock:
            now = self._count(refused=True)
            self._refusals += 1
            self._trouble_since = now if self._refusals == 1 else self._trouble_since
            if self._recent_refused < REFUSED_SHARE * self._recent or now - self._decreased < DECREASE_EVERY_S:
                return
            self._decreased = now
            self._peak = max(MIN_RATE, min(self._recent / WINDOW_S, self._rate or math.inf))
            self._rate = max(MIN_RATE, self._peak / 2)
            if now - self._said > 60:
                self._said = now
                log.warning("%s refuses requests: going on with %.0f a second", self._name, self._rate)

    def _down(self, now: float) -> bool:
        return self._refusals >= DOWN_AFTER_REFUSALS and now - self._trouble_since > DOWN_AFTER_S

    def _count(self, refused: bool) -> float:
        now = time.monotonic()
        faded = math.exp((self._seen - now) / WINDOW_S)
        self._seen = now
        self._recent = self._recent * faded + 1
        self._recent_refused = self._recent_refused * faded + refused
        return now


def pause(attempt: int) -> float:
    """Seconds to wait after the `attempt`-th failure in a row (from 1): growing, with jitter, so that waiters spread out."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempt - 1))
    return longest * (0.5 + random.random() / 2)


_paces: dict[tuple[str, str], Pace] = {}
_paces_lock = threading.Lock()


def pace_of(endpoint: str, bucket: str) -> Pace:
    """The process's one pace of a bucket."""
    with _paces_lock:
        return _paces.setdefault((endpoint, bucket), Pace(f"s3://{bucket}"))
