"""How a host asks its sweep and the runs inside it to stop, from any thread.

Not from a signal handler, which may have interrupted the very thread that holds one of the locks
here.
"""

import contextlib
import threading
from collections.abc import Iterator
from datetime import datetime


class Stop:
    """A request to stop. After it nothing is claimed; runs end by `deadline` or are released."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._watchers: set[threading.Event] = set()
        self.deadline: datetime | None = None

    @property
    def requested(self) -> bool:
        """Whether to stop."""
        return self._requested.is_set()

    def request(self, *, deadline: datetime | None = None) -> None:
        """Ask to stop. `deadline` is when runs that still go on are released; None leaves them
        their own time.

        Of several requests the earliest deadline counts.
        """
        with self._lock:
            self.deadline = min(
                (each for each in (deadline, self.deadline) if each is not None), default=None
            )
            self._requested.set()
            for watcher in tuple(self._watchers):
                watcher.set()

    @contextlib.contextmanager
    def waking(self, event: threading.Event) -> Iterator[None]:
        """Have `event` set when the stop is requested, for as long as the context lasts."""
        with self._lock:
            self._watchers.add(event)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.discard(event)
