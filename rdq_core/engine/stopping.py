"""How a host stops its sweep, and how a run stops its handler.

Neither interrupts a thread: each sets a flag, and wakes the threads that wait for it. `Stop` must
not be used inside a signal handler, which may have interrupted the very thread that holds its lock.
"""

import contextlib
import threading
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum

from rdq_core.domain.times import earliest


class Stop:
    """A request to stop a sweep. After it nothing is claimed; runs end by `deadline` or are
    released.
    """

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
        """Ask to stop, from any thread.

        Runs that still go on at `deadline` are released; None gives them their own time. Of several
        requests the earliest deadline counts.
        """
        with self._lock:
            self.deadline = earliest((deadline, self.deadline))
            # Set before the watchers are woken: each of them reads `requested` next.
            self._requested.set()
            for watcher in tuple(self._watchers):
                watcher.set()

    @contextlib.contextmanager
    def waking(self, event: threading.Event) -> Iterator[None]:
        """Have `event` set when the stop is requested, for as long as the context lasts.

        It is not set for an earlier request: check `requested` after entering, before each wait.
        """
        with self._lock:
            self._watchers.add(event)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.discard(event)


class CancelReason(StrEnum):
    """Why a handler should stop."""

    TIMEOUT = "timeout"
    LEASE_LOST = "lease lost"
    SHUTDOWN = "shutdown"


class Cancellation:
    """The request to one running handler to stop, shared by its `TaskContext` and its run.

    `lock` is held while the handler sends a heartbeat of its own: `cancel` waits for it, so that no
    heartbeat reaches the store after the run's settling write.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requested = threading.Event()
        self.reason: CancelReason | None = None
        self.noticed = False
        """Whether the handler has seen that it is cancelled: ending then counts as giving up."""

    def cancel(self, reason: CancelReason) -> None:
        """Ask the handler to stop. The first reason stays."""
        with self.lock:
            # The reason comes first: a handler that sees `requested` may read it at once.
            self.reason = self.reason or reason
            self.requested.set()

    def note_lost(self) -> None:
        """The handler's own heartbeat found the lease lost. For a caller that holds `lock`."""
        self.reason = self.reason or CancelReason.LEASE_LOST
        self.noticed = True
        self.requested.set()
