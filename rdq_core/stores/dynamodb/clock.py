"""The storage clock: this machine's clock, kept within what DynamoDB's own answers prove about the
time.

Every answer has a `Date` header. The server wrote it after we sent the request and before we had
the answer, so

    sent ──────── Date ≤ server's time < Date + 1 s ──────── received

bounds how far the machine's clock is off. Bounds of many answers are intersected, and the clock is
corrected as little as possible: an exact clock lies within every bound and is never touched. So
workers whose clocks are minutes apart agree, to within a second or two, on what is due and when a
lease ends.

The invariant: `now` never goes back, and never returns an unproved time: before the first answer it
raises. When a proof is missing later, because the machine's clock was set or storage cannot be
reached, the last proved time goes on by the monotonic clock. That time is late at worst, so no live
lease is taken over.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from rdq_core.domain.times import EPOCH, cut_to_millis
from rdq_core.engine.ports import Clock

_RESOLUTION: Final = 1.0
"""Seconds: the header has whole ones."""
_DRIFT: Final = 200e-6
"""How much faster or slower than the server's a machine's clock may run: 200 parts per million."""
_MOST_PARTED: Final = 0.25
_LONGEST_LIFE: Final = 600.0
_ASK_AGAIN_AFTER: Final = 1.0
_VAGUE: Final = 2.0
"""Seconds between bounds from which on they prove too little: the request, or its sender, took a
break.
"""
_ASKED_AT_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The machine's two clocks at one moment, in seconds: the wall clock since 1970, and the
    monotonic one.
    """

    wall: float
    monotonic: float

    @property
    def apart(self) -> float:
        """The difference of the two, which only changes when one of them is set, frozen or
        drifts.
        """
        return self.wall - self.monotonic


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is proved: the server's clock minus ours lies between `low` and `high`, as of a reading
    of ours.
    """

    low: float
    high: float
    at: ClockReading

    def seen_from(self, reading: ClockReading) -> "Bounds | None":
        """The same knowledge later on, a bit vaguer; None when it is too old, or our clocks were
        set since.
        """
        age = reading.monotonic - self.at.monotonic
        if age > _LONGEST_LIFE or age < 0 or abs(reading.apart - self.at.apart) > _MOST_PARTED:
            return None
        return Bounds(self.low - age * _DRIFT, self.high + age * _DRIFT, self.at)

    def narrowed_by(self, newer: "Bounds") -> "Bounds":
        """Both together; the newer alone where they contradict each other."""
        low, high = max(self.low, newer.low), min(self.high, newer.high)
        return Bounds(low, high, newer.at) if low <= high else newer

    @property
    def are_vague(self) -> bool:
        """Whether a clock within them may still be off by too much."""
        return self.high - self.low > _VAGUE

    @property
    def correction(self) -> float:
        """The least that brings our clock within them."""
        return min(max(0.0, self.low), self.high)


class StorageClock:
    """A `Clock` over the machine's own. `listen_to` the DynamoDB clients that it shall learn from.

    `probe` makes any request on such a client; it is called when the time is asked for and nothing
    is known about it. What it raises before there was a first answer, `now` raises: who can't reach
    storage has nothing to claim.
    """

    def __init__(self, machine: Clock, *, probe: Callable[[], object] | None = None) -> None:
        self._machine = machine
        self._probe = probe
        # Reentrant: a signal handler asks for the time between any two bytecodes of a thread that
        # holds them.
        self._lock, self._asking = threading.RLock(), threading.RLock()
        self._sent = threading.local()
        self._bounds: Bounds | None = None
        self._proved: tuple[datetime, float] | None = None
        self._latest = EPOCH
        self._asked_at = float("-inf")

    # -- the port ----------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The present moment by storage's clock: aware, UTC, cut to milliseconds, never earlier
        than returned before.

        Raises StoreFailed or Unavailable while storage has not answered once.
        """
        bounds = self._known()
        if bounds is None or bounds.are_vague:
            bounds = self._asked() or bounds
        here, monotonic = self._machine.now(), self._machine.monotonic()
        with self._lock:
            if bounds is not None and not (bounds.are_vague and self._proved):
                self._proved = (here + timedelta(seconds=bounds.correction), monotonic)
            elif self._proved is None:
                # Answers without a date, or no probe: there is no better clock.
                return cut_to_millis(here)
            proved, since = self._proved
            passed = timedelta(seconds=(monotonic - since) * (1 - _DRIFT))
            self._latest = max(self._latest, cut_to_millis(proved + passed))
            return self._latest

    def monotonic(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return self._machine.monotonic()

    # -- learning ----------------------------------------------------------------------------------

    @property
    def offset(self) -> timedelta:
        """By how much the machine's clock is corrected now; positive when it is slow."""
        bounds = self._known()
        return timedelta(seconds=bounds.correction if bounds else 0.0)

    def listen_to(self, client: Any) -> None:
        """Learn from every answer that a boto3 client gets, failures included."""
        client.meta.events.register("before-send.dynamodb", self._on_send)
        client.meta.events.register("response-received.dynamodb", self._on_answer)

    def observe(self, date: datetime, *, sent: ClockReading, received: ClockReading) -> None:
        """Learn from one answer."""
        if (
            abs(received.apart - sent.apart) > _MOST_PARTED
        ):  # the clock was set, or we were frozen, while we waited
            self.forget()
            return
        server = date.timestamp()
        new = Bounds(server - received.wall, server + _RESOLUTION - sent.wall, received)
        with self._lock:
            known = None if self._bounds is None else self._bounds.seen_from(received)
            self._bounds = new if known is None else known.narrowed_by(new)

    def forget(self) -> None:
        """Trust nothing learned so far. For hosts that may have been frozen, as at a new Lambda
        invocation.
        """
        with self._lock:
            self._bounds = None

    # -- inside ------------------------------------------------------------------------------------

    def _reading(self) -> ClockReading:
        return ClockReading(self._machine.now().timestamp(), self._machine.monotonic())

    def _known(self) -> Bounds | None:
        reading = self._reading()
        with self._lock:
            if self._bounds is not None and self._bounds.seen_from(reading) is None:
                self._bounds = None
            return None if self._bounds is None else self._bounds.seen_from(reading)

    def _asked(self) -> Bounds | None:
        """What a request of our own proves. A thread without a proved time waits while another one
        asks.
        """
        if not self._asking.acquire(blocking=self._proved is None):
            return None
        try:
            for _ in range(_ASKED_AT_MOST):
                known, now = self._known(), self._machine.monotonic()
                is_known = known is not None and not known.are_vague
                if is_known or self._probe is None or now - self._asked_at < self._patience:
                    break
                self._asked_at = now
                self._probe()
        except Exception:  # a refusal is an answer too
            if self._known() is None and self._proved is None:
                raise
        finally:
            self._asking.release()
        return self._known()

    @property
    def _patience(self) -> float:
        return 0.0 if self._proved is None else _ASK_AGAIN_AFTER

    def _on_send(self, **_event: Any) -> None:
        self._sent.reading = self._reading()

    def _on_answer(self, response_dict: Mapping[str, Any] | None = None, **_event: Any) -> None:
        sent: ClockReading | None = getattr(self._sent, "reading", None)
        date = _date_of(response_dict)
        if sent is not None and date is not None:
            self.observe(date, sent=sent, received=self._reading())


def _date_of(response: Mapping[str, Any] | None) -> datetime | None:
    header = None if response is None else response.get("headers", {}).get("date")
    try:
        return None if header is None else parsedate_to_datetime(header)
    except (TypeError, ValueError):
        return None
