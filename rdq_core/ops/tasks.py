"""Queries about tasks in any status.

Nothing here changes anything: `task_edits` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from rdq_core.domain.task import Task
from rdq_core.domain.times import format_time
from rdq_core.engine.ports import Candidate
from rdq_core.errors import TaskConflict, TaskNotFound
from rdq_core.ops.cursors import Cursors, check_page_size, query_of
from rdq_core.ops.mutation import REFUSALS, Mutation
from rdq_core.ops.parts import OperatorParts
from rdq_core.ops.selection import named

LiveStatus: TypeAlias = Literal["PENDING", "IN_FLIGHT"]
_AHEAD: Final = timedelta(days=400)
"""Longer than any task can wait, so that a read up to then returns all waiting tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Conditions on waiting or running tasks, all of which must hold; None is no condition."""

    status: LiveStatus | None = None
    handler: str | None = None

    def admits(self, candidate: Candidate) -> bool:
        """Whether the task meets every condition."""
        return (self.status is None or candidate.status == self.status) and (
            self.handler is None or candidate.handler_ref == self.handler
        )


@dataclass(frozen=True, slots=True)
class LivePage:
    """One page of waiting and running tasks. `next_cursor` is None after the last page."""

    items: tuple[Candidate, ...]
    next_cursor: str | None


class TaskReader:
    """Queries about tasks."""

    def __init__(self, parts: OperatorParts) -> None:
        self._store = parts.store
        self._queues = parts.queues
        self._cursors = Cursors(parts.cursor_key)
        self._clock = parts.clock

    def get(self, task_id: str) -> Task:
        """A task with its history. Raises TaskNotFound."""
        task = self._store.get(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id}", task_id=task_id)
        return task

    def live(
        self, queue: str, chosen: TaskFilter, *, page_size: int = 50, cursor: str | None = None
    ) -> LivePage:
        """A page of the tasks that wait and run, shard by shard, within a shard by due time.

        It comes from the index, which lags the table by moments. Raises QueueNotFound,
        InputInvalid, StaleCursor.
        """
        check_page_size(page_size)
        shards = self._queues.settings(queue).shards_ever
        query = query_of("task.list", queue, chosen.status, chosen.handler)
        position, now = self._cursors.read(cursor, query=query), self._clock.now()
        shard, handle = (0, None) if position is None else position.handle
        items: list[Candidate] = []
        while shard < shards and len(items) < page_size:
            # Never more than still fit, so that the handle stands right behind the last item.
            page = self._store.candidates(
                queue, shard, until=now + _AHEAD, limit=page_size - len(items), after=handle
            )
            items += filter(chosen.admits, page.items)
            shard, handle = (shard, page.next) if page.next is not None else (shard + 1, None)
        more = None if shard >= shards else [shard, handle]
        return LivePage(tuple(items), self._cursors.write(more, query=query, as_of=now))

    def cancellable(self, task_ids: Sequence[str]) -> tuple[dict[str, list[str]], Mutation]:
        """Those of the named tasks that can be cancelled, by queue; and the refusals of the others.

        Raises InputInvalid for a malformed id, for none and for too many.
        """
        wanted = named(task_ids)
        by_queue: dict[str, list[str]] = {}
        tally = Mutation(selected=len(wanted))
        for task_id in wanted:
            try:
                by_queue.setdefault(self._unfinished(task_id).queue, []).append(task_id)
            except REFUSALS as refusal:
                tally = tally.refused(refusal)
        return by_queue, tally

    def _unfinished(self, task_id: str) -> Task:
        task = self.get(task_id)
        if task.status.is_terminal:
            raise TaskConflict(f"task {task_id} is {task.status}", task_id=task_id)
        return task


def candidate_view(candidate: Candidate) -> dict[str, Any]:
    """A waiting or running task as the index has it.

    `due_at` of one that runs is the end of its lease.
    """
    return {
        "id": candidate.task_id,
        "queue": candidate.queue,
        "status": str(candidate.status),
        "handler_ref": candidate.handler_ref,
        "due_at": format_time(candidate.due_at),
    }
