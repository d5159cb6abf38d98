"""Redrives and purges dead tasks, one at a time, each only if it is still as the caller saw it."""

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lifecycle import NO_EDIT, Edit
from rdq_core.domain.task import Task
from rdq_core.engine.events import Event, EventName, event_of
from rdq_core.engine.ports import Clock, EventSink, QueueSource, TaskStore
from rdq_core.errors import TaskConflict


class Redriver:
    """Redrives and purges dead tasks."""

    def __init__(
        self, store: TaskStore, queues: QueueSource, *, clock: Clock, events: EventSink
    ) -> None:
        self._store = store
        self._queues = queues
        self._clock = clock
        self._events = events

    def redrive(
        self, entry: DeadEntry, edit: Edit = NO_EDIT, *, op_id: str, force: bool = False
    ) -> Task:
        """Make a dead task due now, with a full budget; its history is kept.

        Raises TaskConflict when the task is no longer dead as `entry` shows it, or was redriven
        `max_redrives` times already (`force` overrides that), and QueueNotFound when its queue is
        no longer configured.
        """
        settings = self._queues.settings(entry.queue)
        most = settings.limits.max_redrives
        if entry.redrive_count >= most and not force:
            raise TaskConflict(
                f"task {entry.task_id} was redriven {entry.redrive_count} times;"
                f" {entry.queue} allows {most}",
                task_id=entry.task_id,
                hint="find out why it keeps dying, or use --force",
            )
        # `op_id` is stored with the row, so that a repetition after a lost answer redrives no later
        # death.
        task = self._store.redrive(
            entry, edit, now=self._clock.now(), op_id=op_id, shards=settings.index_shards
        )
        self._events.emit(event_of(EventName.REDRIVEN, task))
        return task

    def purge(self, entry: DeadEntry, *, op_id: str) -> None:
        """Remove a dead task with its history. Raises TaskConflict when it is no longer dead as
        `entry` shows it.
        """
        self._store.purge(entry, now=self._clock.now(), op_id=op_id)
        self._events.emit(
            Event(
                name=EventName.PURGED,
                task_id=entry.task_id,
                queue=entry.queue,
                handler_ref=entry.handler_ref,
                code=entry.code,
            )
        )
