"""Clocks, sleeps and jitter for tests.

Time stands still until the test moves it, so that tests neither wait nor depend on timing.
"""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from rdq_core.domain.times import cut_to_millis
from rdq_core.domain.units import parse_duration

_GLANCE: Final = 0.001
NOON: Final = datetime(2026, 7, 20, 12, tzinfo=UTC)


class FrozenClock:
    """A clock that stands still until it is moved. Threads may share it.

    It starts at `now`, an aware datetime, kept in UTC and cut to milliseconds like every time in
    rdq.
    """

    def __init__(self, now: datetime = NOON) -> None:
        if now.tzinfo is None:
            raise ValueError(
                "a clock needs an aware datetime, such as datetime(2026, 7, 20, tzinfo=UTC)"
            )
        self._now = cut_to_millis(now)
        self._passed = timedelta(0)
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The present moment: aware, UTC, cut to milliseconds."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """The seconds that `advance` has let pass.

        `step` does not move it, as setting a real clock does not.
        """
        with self._lock:
            return self._passed.total_seconds()

    def advance(self, span: timedelta | str) -> datetime:
        """Let time pass, as in `advance("2h")`, and return the new moment.

        Raises ValueError for a negative span.
        """
        passed = parse_duration(span)
        with self._lock:
            self._passed += passed
            self._now += passed
            return self._now

    def step(self, span: timedelta) -> datetime:
        """Set the clock forward or back without time passing, as a correction of a skewed clock
        does.
        """
        with self._lock:
            self._now = cut_to_millis(self._now + span)
            return self._now


class NoJitter:
    """Jitter of zero: a delay is exactly what the configuration says."""

    def fraction(self) -> float:
        """Zero, of the range from -1 to 1."""
        return 0.0


class SkipsSleep:
    """Moves the clock in place of sleeping, so that a night of retries takes no time.

    `slept` holds the seconds of each wait that was skipped, in order.
    """

    def __init__(self, clock: FrozenClock) -> None:
        self._clock = clock
        self.slept: list[float] = []

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Return True at once if `wake` is set; else let `seconds` pass on the clock and return
        False.

        A wait is rounded up to the next millisecond and is at least one: a caller that woke early
        would find nothing due and sleep again, without end.
        """
        if wake.is_set():
            return True
        self.slept.append(seconds)
        self._clock.advance(_whole_millis(seconds))
        return wake.is_set()


def _whole_millis(seconds: float) -> timedelta:
    # Rounded to microseconds first: 0.1 + 0.2 seconds are 300 ms, not 301.
    micros = round(max(seconds, 0.0) * 1_000_000)
    return timedelta(milliseconds=max(-(-micros // 1000), 1))


class FollowsClock:
    """Waits until another thread has moved the clock far enough, or the event is set.

    For tests of real threads.
    Raises AssertionError after `patience` real seconds in which neither happened, so that a test
    fails and does not hang.
    """

    def __init__(self, clock: FrozenClock, *, patience: float = 20.0) -> None:
        self._clock = clock
        self._patience = patience

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Return True when `wake` is set, False when the clock has moved on by `seconds`."""
        until = self._clock.now() + timedelta(milliseconds=max(1, round(seconds * 1000)))
        give_up = time.monotonic() + self._patience
        while not wake.wait(_GLANCE):
            if self._clock.now() >= until:
                return False
            if time.monotonic() > give_up:
                raise AssertionError(
                    f"nothing happened and no thread moved the clock for {self._patience} seconds"
                )
        return True
