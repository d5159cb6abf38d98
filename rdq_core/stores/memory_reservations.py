"""Which queues have a sweep that is awake, in this process's memory: the reference, gone with the
process.
"""

import threading
from datetime import datetime


class MemoryReservations:
    """A `Reservations`, safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, datetime] = {}

    def extend(self, queue: str, *, until: datetime) -> None:
        """See `Reservations.extend`."""
        with self._lock:
            self._until[queue] = max(until, self._until.get(queue, until))

    def release(self, queue: str) -> None:
        """See `Reservations.release`."""
        with self._lock:
            self._until.pop(queue, None)

    def acquire(self, queue: str, *, now: datetime, until: datetime) -> bool:
        """See `Reservations.acquire`."""
        with self._lock:
            if queue in self._until and self._until[queue] > now:
                return False
            self._until[queue] = until
            return True

    def is_awake(self, queue: str, now: datetime) -> bool:
        """Whether somebody says so, for tests."""
        with self._lock:
            return queue in self._until and self._until[queue] > now
