"""How fast a bucket may be asked, learnt from its answers and shared by all threads of the process.

Twice a second it is looked at what the last half second brought. More than one refusal in twenty requests: from now on a
little less than what was answered. Fewer: a little more, until the limit no longer holds anybody back and is dropped.
A bucket that has answered nothing for long is not asked by everyone: whoever comes fails at once, and one request every few
seconds looks whether it is back.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time

MIN_RATE = 10.0  # requests/s; whoever is refused pauses by himself as well
WINDOW_S = 0.5
REFUSED_SHARE = 0.05
BELOW_ANSWERED = 0.8
GROWTH = 0.1  # per second
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
        self._next = 0.0  # when the next request may start
        self._window, self._answers, self._refused = time.monotonic(), 0, 0
        self._in_a_row, self._trouble_since, self._probed, self._said = 0, 0.0, -math.inf, -math.inf
        self.ever_answered = False

    @property
    def rate(self) -> float | None:
        """Requests/s at most, None without a limit."""
        return self._rate

    def delay(self) -> float:
        """Seconds to wait before asking; infinite where the bucket is down and another request is looking."""
        with self._lock:
            now = time.monotonic()
            if self._in_a_row >= DOWN_AFTER_REFUSALS and now - self._trouble_since > DOWN_AFTER_S:
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
            self._answers += 1
            self._in_a_row, self.ever_answered = 0, True
            self._adapt(time.monotonic())

    def refused(self) -> None:
        """It was busy, broken or not to be reached."""
        with self._lock:
            now = time.monotonic()
            self._refused += 1
            self._in_a_row += 1
            self._trouble_since = now if self._in_a_row == 1 else self._trouble_since
            self._adapt(now)

    def _adapt(self, now: float) -> None:
        elapsed = now - self._window
        if elapsed < WINDOW_S:
            return
        answers, asked = self._answers, self._answers + self._refused
        if self._refused > REFUSED_SHARE * asked:
            self._rate = max(MIN_RATE, BELOW_ANSWERED * answers / elapsed)
            if now - self._said > 60:
                self._said = now
                log.warning("%s refuses requests: going on with %.0f a second", self._name, self._rate)
        elif self._rate is not None:
            self._rate *= 1 + GROWTH * min(elapsed, 1.0)
            if self._rate > 4 * asked / elapsed:
                self._rate = None
        self._window, self._answers, self._refused = now, 0, 0


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
