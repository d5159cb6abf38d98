"""Tasks as operators look at them and stop them, whatever state they are in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from rdq_core.domain.task import Status, Task
from rdq_core.domain.times import format_time
from rdq_core.engine.auditor import Auditor
from rdq_core.engine.cancel import Canceller
from rdq_core.engine.ports import Candidate, Clock, IdSource, QueueSource, TaskStore
from rdq_core.errors import TaskConflict, TaskNotFound
from rdq_core.ops.cursors import Cursors, check_page_size, query_of
from rdq_core.ops.mutation import REFUSALS, Mutation
from rdq_core.ops.selection import named

AT_ONCE: Final = 500
"""How many tasks of a queue one request stops at most."""
_AHEAD: Final = timedelta(days=400)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Conditions that a waiting or running task must meet, all of them; None asks nothing."""

    status: Status | None = None
    handler: str | None = None

    def admits(self, candidate: Candidate) -> bool:
        """Whether the task meets every condition."""
        return (self.status is None or candidate.status is self.status) and (
            self.handler is None or candidate.handler_ref == self.handler
        )


class TaskDesk:
    """Requests about tasks. Without an auditor nothing can be stopped."""

    def __init__(
        self,
        store: TaskStore,
        queues: QueueSource,
        canceller: Canceller,
        cursors: Cursors,
        auditor: Auditor | None = None,
        *,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._store = store
        self._queues = queues
        self._canceller = canceller
        self._cursors = cursors
        self._auditor = auditor
        self._clock = clock
        self._ids = ids

    # -- looking -----------------------------------------------------------------------------------

    def get(self, task_id: str) -> Task:
        """A task with its history. Raises TaskNotFound."""
        task = self._store.get(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id}", task_id=task_id)
        return task

    def live(
        self, queue: str, chosen: TaskFilter, *, page_size: int = 50, cursor: str | None = None
    ) -> dict[str, Any]:
        """A page of what waits and runs, shard by shard, in each of them what is due first before
        the others.

        It comes from the index, which follows the tasks by moments. Raises QueueNotFound,
        InputInvalid, StaleCursor.
        """
        check_page_size(page_size)
        found, more = self._page(queue, chosen, page_size, cursor)
        return {"items": [candidate_view(each) for each in found], "next_cursor": more}

    def _page(
        self, queue: str, chosen: TaskFilter, size: int, cursor: str | None
    ) -> tuple[list[Candidate], str | None]:
        shards = self._queues.settings(queue).shards_ever
        query = query_of("task.list", queue, chosen.status, chosen.handler)
        place, now = self._cursors.read(cursor, query=query), self._clock.now()
        shard, handle = (0, None) if place is None else place.handle
        found: list[Candidate] = []
        while shard < shards and len(found) < size:
            page = self._store.candidates(
                queue, shard, until=now + _AHEAD, limit=size - len(found), after=handle
            )
            found += filter(chosen.admits, page.items)
            shard, handle = (shard, page.next) if page.next is not None else (shard + 1, None)
        more = None if shard >= shards else [shard, handle]
        return found, self._cursors.write(more, query=query, as_of=now)

    # -- stopping ----------------------------------------------------------------------------------

    def cancel(
        self, task_ids: Sequence[str], *, dry_run: bool = False, reason: str | None = None
    ) -> Mutation:
        """Stop tasks that wait or run. `dry_run` counts those that it would stop and changes
        nothing.

        A task that has ended is skipped, its refusal naming the state. The others are on the audit
        logs of their queues before the first of each queue is stopped. Raises InputInvalid for what
        is no id, none or too many, before anything is changed; StoreFailed and Unavailable when it
        can't be put on record: then ask again, which stops what is left.
        """
        wanted = named(task_ids)
        tally = Mutation(selected=len(wanted), dry_run=dry_run)
        of_queues: dict[str, list[str]] = {}
        for task_id in wanted:
            try:
                of_queues.setdefault(self._unended(task_id).queue, []).append(task_id)
            except REFUSALS as refusal:
                tally = tally.refused(refusal)
        for queue, stoppable in () if dry_run else of_queues.items():
            tally = tally.with_outcomes_of(self._stop(queue, stoppable, reason=reason, detail={}))
        return tally

    def cancel_matching(
        self,
        queue: str,
        chosen: TaskFilter,
        *,
        dry_run: bool = False,
        reason: str | None = None,
        cursor: str | None = None,
    ) -> tuple[Mutation, str | None]:
        """Stop the next tasks of a queue that meet the conditions, and say where to go on: None at
        the end.

        They are on the audit log before the first is stopped. Raises QueueNotFound, StaleCursor.
        """
        found, more = self._page(queue, chosen, AT_ONCE, cursor)
        if dry_run or not found:
            return Mutation(selected=len(found), dry_run=dry_run), more
        detail = {"status": chosen.status and str(chosen.status), "handler": chosen.handler}
        return self._stop(
            queue, [each.task_id for each in found], reason=reason, detail=detail
        ), more

    def _stop(
        self, queue: str, task_ids: Sequence[str], *, reason: str | None, detail: Mapping[str, Any]
    ) -> Mutation:
        """Stop tasks of one queue, which are on record before the first of them is."""
        op_id = self._ids.nonce()
        done = Mutation(selected=len(task_ids))
        told = {**detail, "ids": [*task_ids]}
        with self._required().recorded("task.cancel", queue, reason=reason, detail=told) as result:
            for task_id in task_ids:
                try:
                    self._canceller.cancel(task_id, op_id=op_id)
                    done = replace(done, done=done.done + 1)
                except REFUSALS as refusal:
                    done = done.refused(refusal)
            result.update(done.counts)
        return done

    def _required(self) -> Auditor:
        if self._auditor is None:
            raise RuntimeError("a desk without an auditor stops nothing")
        return self._auditor

    def _unended(self, task_id: str) -> Task:
        """A task that can be stopped. Raises what says why it can't."""
        task = self.get(task_id)
        if task.status.is_terminal:
            raise TaskConflict(f"task {task_id} is {task.status}", task_id=task_id)
        return task


def candidate_view(candidate: Candidate) -> dict[str, Any]:
    """A waiting or running task as the index has it. `due_at` is the end of the lease of one that
    runs.
    """
    return {
        "id": candidate.task_id,
        "queue": candidate.queue,
        "status": str(candidate.status),
        "handler_ref": candidate.handler_ref,
        "due_at": format_time(candidate.due_at),
    }
