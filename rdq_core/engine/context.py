"""What a handler sees of the task that it is running."""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Final

from rdq_core.domain.lease import Claim
from rdq_core.domain.task import Task
from rdq_core.engine.ports import Clock
from rdq_core.engine.stopping import Cancellation
from rdq_core.errors import LeaseLost


class TaskContext:
    """Handed to a handler beside its input.

    Delivery is at least once: the same task may run again, even while an earlier run is still
    going. Deduplicate on `idempotency_key`, or pass `fencing_token` to systems that can refuse an
    older one.

    A handler that runs for long checks `cancelled` now and then, or calls `check_lease()`. Once it
    has seen that it is cancelled, ending in any way counts as giving up: the task is released or
    retried, and what the handler returned is dropped.
    """

    def __init__(
        self,
        task: Task,
        claim: Claim,
        *,
        deadline: datetime,
        clock: Clock,
        extend: Callable[[], None],
        cancellation: Cancellation | None = None,
    ) -> None:
        self.task = task
        self.attempt_no = claim.attempt_no
        self.fencing_token = claim.fencing_token
        self.deadline = deadline
        self._clock = clock
        self._extend = extend
        self._cancellation = cancellation or Cancellation()

    @property
    def idempotency_key(self) -> str:
        """The task's id: the same for every attempt and every redrive."""
        return self.task.id

    @property
    def payload(self) -> bytes:
        """The payload as it was submitted, byte for byte."""
        return self.task.payload

    def remaining(self) -> timedelta:
        """The time until the deadline; zero once it has passed."""
        return max(self.deadline - self._clock.now(), timedelta(0))

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the deadline has passed, the lease was lost, the task was cancelled, or
        the worker is stopping.
        """
        if not self._cancellation.requested.is_set():
            return False
        self._cancellation.noticed = True
        return True

    def wait(self, seconds: float) -> bool:
        """Sleep until the time is over or the work is cancelled; True when it was cancelled."""
        return self._cancellation.requested.wait(seconds) and self.cancelled

    def check_lease(self) -> None:
        """Return while the work may go on. Raises LeaseLost when it should stop: let it pass."""
        if self.cancelled:
            raise LeaseLost(
                f"stop working on task {self.task.id}: {self._cancellation.reason}",
                task_id=self.task.id,
            )

    def heartbeat(self) -> None:
        """Extend the lease to one full lease from now. Raises LeaseLost when the task is no longer
        ours: stop the work.
        """
        # Under the lock, so that the end of the run waits for this write: a heartbeat that came
        # after the settling write would be refused for no reason.
        with self._cancellation.lock:
            self.check_lease()
            try:
                self._extend()
            except LeaseLost:
                self._cancellation.note_lost()
                raise


current_delivery: Final[ContextVar[TaskContext | None]] = ContextVar("rdq_delivery", default=None)
"""The delivery that this code runs in; None outside of one, and in threads that a handler has
started itself.
"""
