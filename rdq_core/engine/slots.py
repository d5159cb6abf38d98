"""How many handlers run at once: places in this process, one a running handler, by queue."""

import threading
from collections import Counter


class Slots:
    """How many handlers of each queue are running in this process. A handler that ignores its end
    keeps its slot.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, queue: str, limit: int) -> bool:
        """One more, unless `limit` are taken."""
        with self._lock:
            if self._taken[queue] >= limit:
                return False
            self._taken[queue] += 1
            return True

    def taken(self, queue: str) -> int:
        """How many are taken."""
        with self._lock:
            return self._taken[queue]

    @property
    def any_taken(self) -> bool:
        """Whether any handler is running."""
        with self._lock:
            return self._taken.total() > 0

    def give_back(self, queue: str) -> None:
        """One less."""
        with self._lock:
            self._taken[queue] -= 1
