"""Reservations of the sweeps that a sweep starts: helpers while much is due, and a successor.

    rdq.help.<queue>.<n>   helper n: acquired by the sweep that starts it, extended by itself,
                           released at its end
    rdq.next.<queue>       successor: acquired until the next scheduled sweep has begun

The invariant: however many sweeps overlap, a queue has at most `max_sweepers` - 1 helpers and one
successor per minute. Otherwise each scheduled sweep would start a chain of successors that runs as
long as there is work.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rdq_core.engine.ports import Clock, ErrorSink, Reservations
from rdq_core.errors import StoreFailed

SCHEDULED_EVERY: Final = timedelta(seconds=60)
"""A sweep is scheduled each minute; an invocation that hasn't begun by then is discarded."""
BACKGROUND: Final = "rdq.background"
"""The name of a successor for bulk operations alone; no queue can have it."""


class SweepReservations:
    """`Reservations` by name, for sweeps.

    StoreFailed is reported and counts as reserved, because the next scheduled sweep comes anyway.
    """

    def __init__(self, reservations: Reservations, *, clock: Clock, on_error: ErrorSink) -> None:
        self._reservations = reservations
        self._clock = clock
        self._on_error = on_error

    def acquire(self, name: str, *, lasts: timedelta = SCHEDULED_EVERY) -> bool:
        """Reserve a name for a sweep that is about to be started. False when it is reserved."""
        now = self._clock.now()
        try:
            return self._reservations.acquire(name, now=now, until=now + lasts)
        except StoreFailed as failed:
            self._on_error(failed, where=f"acquiring the reservation {name}")
            return False

    def extend(self, name: str, *, lasts: timedelta) -> None:
        """Hold the reservation for `lasts` from now."""
        try:
            self._reservations.extend(name, until=self._clock.now() + lasts)
        except StoreFailed as failed:  # another sweep may acquire it: one helper more, no harm
            self._on_error(failed, where=f"extending the reservation {name}")

    def release(self, name: str) -> None:
        """Free the name."""
        try:
            self._reservations.release(name)
        except StoreFailed as failed:  # it expires
            self._on_error(failed, where=f"releasing the reservation {name}")


def helper_reservation(queue: str, share: Sequence[int]) -> str:
    """The name for the helper with this share: shares of one queue differ in their first shard."""
    return f"rdq.help.{queue}.{share[0]}"


def successor_reservation(queue: str) -> str:
    """The name for the sweep that continues with a queue."""
    return f"rdq.next.{queue}"
