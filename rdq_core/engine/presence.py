"""A sweep's word that it is awake: while it holds, whoever sees new work leaves it to that sweep.

    at work ── says so each second, for two more ──┐
    nothing to do for a second ── takes it back ◄──┘ ── looks for two more seconds ── returns

The invariant: between the moment at which it takes its word back and its return a sweep looks at
every shard, so a row that nobody started a sweep for, because this one was awake, is seen.
"""

import threading
from datetime import datetime, timedelta
from typing import Final

from rdq_core.engine.ports import Clock, ErrorSink, Reservations
from rdq_core.errors import StoreFailed

AWAKE_FOR: Final = timedelta(seconds=2)
_SAID_EVERY: Final = timedelta(seconds=1)


class Presence:
    """What one sweep says of itself. Nothing is written while it is idle, and nothing at all
    without `reservations`.
    """

    def __init__(
        self, reservations: Reservations | None, *, clock: Clock, on_error: ErrorSink
    ) -> None:
        self._reservations = reservations
        self._clock = clock
        self._on_error = on_error
        self._lock = threading.Lock()
        self._worked_at: dict[str, datetime] = {}
        self._said_at: dict[str, datetime] = {}

    def note_work(self, queue: str) -> None:
        """Something was started or has ended. From any thread."""
        with self._lock:
            self._worked_at[queue] = self._clock.now()

    def keep(self, queue: str, *, is_at_work: bool) -> None:
        """After each look at a queue: say that the sweep is awake, or that it isn't any longer."""
        now = self._clock.now()
        with self._lock:
            worked_at = self._worked_at.get(queue)
        if is_at_work or (worked_at is not None and now - worked_at < _SAID_EVERY):
            self._stay_awake(queue, now)
        elif queue in self._said_at:
            self._fall_asleep(queue)

    @property
    def is_awake(self) -> bool:
        """Whether it has said so, and not taken it back."""
        return bool(self._said_at)

    def end(self) -> None:
        """Take back every word."""
        for queue in tuple(self._said_at):
            self._fall_asleep(queue)

    def _stay_awake(self, queue: str, now: datetime) -> None:
        said_at = self._said_at.get(queue)
        if self._reservations is None or (said_at is not None and now - said_at < _SAID_EVERY):
            return
        self._said_at[queue] = now
        try:
            self._reservations.extend(queue, until=now + AWAKE_FOR)
        except StoreFailed as failed:  # somebody may start another sweep, which does no harm
            self._on_error(failed, where=f"staying awake for queue {queue}")

    def _fall_asleep(self, queue: str) -> None:
        if self._reservations is None:
            return
        del self._said_at[queue]
        try:
            self._reservations.release(queue)
        except (
            StoreFailed
        ) as failed:  # then the word ends by itself within the two seconds of the last look
            self._on_error(failed, where=f"falling asleep for queue {queue}")
