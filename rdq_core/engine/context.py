"""What a running handler knows about itself, and how it hears that it should stop."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from rdq_core.domain.lease import Claim
from rdq_core.domain.task import Task
from rdq_core.engine.ports import Clock
from rdq_core.errors import LeaseLost


class CancelReason(StrEnum):
    """Why a handler should stop."""

    TIMEOUT = "timeout"
    LEASE_LOST = "lease lost"
    SHUTDOWN = "shutdown"


class TaskContext:
    """Handed to a handler beside its input.

    Delivery is at least once: the same task may run again, also while an earlier run is still
    going. Dedupe on `idempotency_key`, or pass `fencing_token` to systems that can refuse an older
    one.

    A handler that runs for long looks at `cancelled` now and then, or calls `check_lease()`. Once
    it has seen that it is cancelled, ending by whatever way counts as giving up: the task is
    released or retried, and what was returned is dropped.
    """

    def __init__(
        self,
        task: Task,
        claim: Claim,
        *,
        deadline: datetime,
        clock: Clock,
        extend: Callable[[], None],
    ) -> None:
        self.task = task
        self.attempt_no = claim.attempt_no
        self.fencing_token = claim.fencing_token
        self.deadline = deadline
        self._clock = clock
        self._extend = extend
        self._cancelled = threading.Event()
        self._reason: CancelReason | None = None
        self._noticed = False
        self._lock = threading.Lock()

    @property
    def idempotency_key(self) -> str:
        """The task's id: the same for every attempt and every redrive."""
        return self.task.id

    @property
    def payload(self) -> bytes:
        """The payload as it was submitted, byte for byte."""
        return self.task.payload

    def remaining(self) -> timedelta:
        """The time until the deadline; zero when it has passed."""
        return max(self.deadline - self._clock.now(), timedelta(0))

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the time is over, the lease was lost, the task was cancelled, or the
        worker is stopping.
        """
        if not self._cancelled.is_set():
            return False
        self._noticed = True
        return True

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than until the work is cancelled; True when it was."""
        return self._cancelled.wait(seconds) and self.cancelled

    def check_lease(self) -> None:
        """Raise LeaseLost when the work should stop; let it through."""
        if self.cancelled:
            raise LeaseLost(
                f"stop working on task {self.task.id}: {self._reason}", task_id=self.task.id
            )

    def heartbeat(self) -> None:
        """Hold the task for another lease from now on. Raises LeaseLost when it is no longer ours:
        stop the work.
        """
        # one after the other with the end of the run, which must not be overtaken by a late
        # heartbeat
        with self._lock:
            self.check_lease()
            try:
                self._extend()
            except LeaseLost:
                self._cancel(CancelReason.LEASE_LOST)
                self._noticed = True
                raise

    # -- for the engine ----------------------------------------------------------------------------

    @property
    def reason(self) -> CancelReason | None:
        """Why the work was cancelled; None while it wasn't."""
        return self._reason

    @property
    def gave_up(self) -> bool:
        """Whether the handler has seen that it is cancelled."""
        return self._noticed

    def cancel(self, reason: CancelReason) -> None:
        """Ask the handler to stop. The first reason stays."""
        with self._lock:
            self._cancel(reason)

    def _cancel(self, reason: CancelReason) -> None:
        self._reason = self._reason or reason
        self._cancelled.set()


_DELIVERY: Final[ContextVar[TaskContext | None]] = ContextVar("rdq_delivery", default=None)


def current_delivery() -> TaskContext | None:
    """The delivery that this code runs in; None outside of one, and in threads that a handler
    starts by itself.
    """
    return _DELIVERY.get()


@contextlib.contextmanager
def delivering(context: TaskContext) -> Iterator[None]:
    """Let code within know that it runs in a delivery. For whoever calls a handler."""
    token = _DELIVERY.set(context)
    try:
        yield
    finally:
        _DELIVERY.reset(token)
