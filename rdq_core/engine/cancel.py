"""Cancels a task that waits or runs."""

from datetime import timedelta

from rdq_core.config.effective import effective
from rdq_core.domain.task import Task
from rdq_core.engine.events import EventName, event_of
from rdq_core.engine.ports import Clock, EventSink, QueueSource, TaskStore
from rdq_core.errors import QueueNotFound, TaskNotFound


class Canceller:
    """Cancels tasks."""

    def __init__(
        self, store: TaskStore, queues: QueueSource, *, clock: Clock, events: EventSink
    ) -> None:
        self._store = store
        self._queues = queues
        self._clock = clock
        self._events = events

    def cancel(self, task_id: str, *, op_id: str) -> Task:
        """Stop a task for good; a handler that is running finds its lease lost. The row is kept for
        the queue's `task_ttl`.

        `op_id` marks the write as this request's. Raises TaskNotFound, and TaskConflict naming the
        state of a task that has ended already.
        """
        task = self._store.get(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id}", task_id=task_id)
        # The row may change after this read; the write's own condition decides.
        now = self._clock.now()
        cancelled = self._store.cancel(
            task_id, now=now, op_id=op_id, expires_at=now + self._task_ttl(task.queue)
        )
        self._events.emit(event_of(EventName.CANCELLED, cancelled))
        return cancelled

    def _task_ttl(self, queue: str) -> timedelta:
        try:
            return self._queues.settings(queue).limits.task_ttl
        except QueueNotFound:  # a task of a deleted queue can still be cancelled
            return effective(queue, {}, {}).limits.task_ttl
