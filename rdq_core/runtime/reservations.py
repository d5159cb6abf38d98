"""Whom a sweep starts: helpers while much is due, and a successor for what it leaves. Each place is
taken once.

    rdq.help.<queue>.<n>   the n-th helper: booked by whoever starts it, kept by itself, given back at its end
    rdq.next.<queue>       a successor: booked until the next scheduled sweep has begun

The invariant: however many sweeps overlap, a queue has no more than `max_sweepers` - 1 helpers, and
one successor a minute. Without it each scheduled sweep would begin a line of its own, which ended
only with the work.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rdq_core.engine.ports import Clock, ErrorSink, Reservations
from rdq_core.errors import StoreFailed

SCHEDULED_EVERY: Final = timedelta(seconds=60)
"""A sweep is scheduled each minute; an invocation that hasn't begun by then never does."""
BACKGROUND: Final = "rdq.background"
"""What a successor for bulk operations alone is for, under a name that no queue can have."""


class Places:
    """The places of sweeps beside and after others. StoreFailed is told, and counts as taken: the
    schedule comes.
    """

    def __init__(self, reservations: Reservations, *, clock: Clock, on_error: ErrorSink) -> None:
        self._reservations = reservations
        self._clock = clock
        self._on_error = on_error

    def takes(self, place: str, *, lasts: timedelta = SCHEDULED_EVERY) -> bool:
        """Whether the place was free, and is the caller's to fill."""
        now = self._clock.now()
        try:
            return self._reservations.acquire(place, now=now, until=now + lasts)
        except StoreFailed as failed:
            self._on_error(failed, where=f"taking the place {place}")
            return False

    def keep(self, place: str, *, lasts: timedelta) -> None:
        """Hold the place for as long as its sweep may go on."""
        try:
            self._reservations.extend(place, until=self._clock.now() + lasts)
        except (
            StoreFailed
        ) as failed:  # somebody may take it meanwhile: one sweep more, which does no harm
            self._on_error(failed, where=f"keeping the place {place}")

    def give_back(self, place: str) -> None:
        """Let somebody else have it."""
        try:
            self._reservations.release(place)
        except StoreFailed as failed:  # then it is free when its time has run out
            self._on_error(failed, where=f"giving back the place {place}")


def helpers_place(queue: str, share: Sequence[int]) -> str:
    """The place of the helper that has this share: shares of one queue differ in their first shard."""
    return f"rdq.help.{queue}.{share[0]}"


def successors_place(queue: str) -> str:
    """The place of whoever goes on with a queue."""
    return f"rdq.next.{queue}"
