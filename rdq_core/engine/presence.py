"""How a sweep announces to other hosts that it is at work, so that no one starts another one.

    at work ── announces each second, for two more ──┐
    idle for a second ── withdraws the announcement ◄┘ ── looks for two more seconds ── returns

The invariant: between withdrawing and returning, a sweep looks at every shard. So a row for which
no sweep was started, because this one was announced, is seen by it.
"""

import threading
from datetime import datetime, timedelta
from typing import Final

from rdq_core.engine.ports import Clock, ErrorSink, Reservations
from rdq_core.errors import StoreFailed

AWAKE_FOR: Final = timedelta(seconds=2)
"""How long an announcement holds."""
_ANNOUNCED_EVERY: Final = timedelta(seconds=1)


class Presence:
    """The announcements of one sweep, queue by queue. An idle sweep writes nothing."""

    def __init__(self, reservations: Reservations, *, clock: Clock, on_error: ErrorSink) -> None:
        self._reservations = reservations
        self._clock = clock
        self._on_error = on_error
        self._lock = threading.Lock()
        self._worked_at: dict[str, datetime] = {}
        self._announced_at: dict[str, datetime] = {}

    def note_work(self, queue: str) -> None:
        """Note that a run was started or has ended. From any thread."""
        with self._lock:
            self._worked_at[queue] = self._clock.now()

    def keep(self, queue: str, *, is_at_work: bool) -> None:
        """After each look at a queue: announce the sweep, or withdraw the announcement."""
        now = self._clock.now()
        # Only this dict is shared: announcements are written by the scheduler's thread alone.
        with self._lock:
            worked_at = self._worked_at.get(queue)
        if is_at_work or (worked_at is not None and now - worked_at < _ANNOUNCED_EVERY):
            self._announce(queue, now)
        elif queue in self._announced_at:
            self._withdraw(queue)

    @property
    def is_announced(self) -> bool:
        """Whether any announcement has not been withdrawn."""
        return bool(self._announced_at)

    def end(self) -> None:
        """Withdraw every announcement."""
        for queue in tuple(self._announced_at):
            self._withdraw(queue)

    def _announce(self, queue: str, now: datetime) -> None:
        announced_at = self._announced_at.get(queue)
        if announced_at is not None and now - announced_at < _ANNOUNCED_EVERY:
            return
        # Noted before the write: one whose answer is lost may hold all the same.
        self._announced_at[queue] = now
        try:
            self._reservations.extend(queue, until=now + AWAKE_FOR)
        except StoreFailed as failed:  # another sweep may be started, which does no harm
            self._on_error(failed, where=f"announcing the sweep of queue {queue}")

    def _withdraw(self, queue: str) -> None:
        del self._announced_at[queue]
        try:
            self._reservations.release(queue)
        except StoreFailed as failed:
            # The announcement expires within two seconds, while this sweep still looks.
            self._on_error(failed, where=f"withdrawing the announcement of queue {queue}")
