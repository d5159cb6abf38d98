"""What operators do to dead tasks: send some back, or remove them, at once; or leave many to a job.

The invariant: nothing is selected by accident, an entry that died again while a request was under
way is left for the next one, and each request is on the audit log before its first write.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.job import Job
from rdq_core.domain.lifecycle import NO_EDIT, Edit
from rdq_core.domain.task import Task
from rdq_core.engine.auditor import Auditor
from rdq_core.engine.ports import Clock, IdSource, QueueSource, TaskStore
from rdq_core.engine.redrive import Redriver
from rdq_core.errors import TaskConflict, TaskNotFound
from rdq_core.ops.dead_letters import entries_of
from rdq_core.ops.jobs import SETTLES_WITHIN, Jobs
from rdq_core.ops.mutation import REFUSALS, Mutation
from rdq_core.ops.orders import Operation, Order, check_edit, check_order
from rdq_core.ops.preview import Preview, preview
from rdq_core.ops.selection import named


class DeadLetterEditor:
    """Requests that change dead tasks, by the principal of the `auditor`."""

    def __init__(
        self,
        store: TaskStore,
        queues: QueueSource,
        redriver: Redriver,
        jobs: Jobs,
        auditor: Auditor,
        *,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._store = store
        self._queues = queues
        self._redriver = redriver
        self._jobs = jobs
        self._auditor = auditor
        self._clock = clock
        self._ids = ids

    # -- many --------------------------------------------------------------------------------------

    def preview(self, queue: str, order: Order) -> Preview:
        """What a job would touch at this moment, and what it would cost; nothing is changed.

        Raises QueueNotFound, InputInvalid for an order that doesn't fit, and TaskNotFound for a
        group of which none is dead.
        """
        settings = self._queues.settings(queue)
        check_order(order, settings)
        cutoff = self._clock.now() - SETTLES_WITHIN
        found = preview(entries_of(self._store, queue), order, settings, cutoff=cutoff)
        group = order.selection.filters.group
        if group is not None and not found.selected + found.young:
            raise TaskNotFound(
                f"no dead task of {queue} is of group {group}", hint=f"rdq dlq groups {queue}"
            )
        return found

    def start(
        self, queue: str, order: Order, *, reason: str | None = None, expected: int | None = None
    ) -> Job:
        """Write a job down, for anybody to advance. Raises as `Jobs.start` does."""
        return self._jobs.start(queue, order, self._auditor, reason=reason, expected=expected)

    # -- some, by their ids ------------------------------------------------------------------------

    def redrive(
        self,
        queue: str,
        task_ids: Sequence[str],
        edit: Edit = NO_EDIT,
        *,
        force: bool = False,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Mutation:
        """Send these tasks back: due now, with a full budget. `dry_run` counts them and changes
        nothing.

        Raises QueueNotFound, and InputInvalid for an edit that doesn't fit or too many ids.
        """
        task_ids = named(task_ids)
        check_edit(edit, self._queues.settings(queue), is_one=len(task_ids) == 1)
        op_id = self._ids.task_id()
        detail = {
            "ids": [*task_ids],
            **({"force": True} if force else {}),
            **self._told(edit, task_ids),
        }
        return self._each(
            Operation.REDRIVE,
            queue,
            task_ids,
            lambda entry: self._redriver.redrive(entry, edit, op_id=op_id, force=force),
            detail=detail,
            reason=reason,
            dry_run=dry_run,
        )

    def purge(
        self,
        queue: str,
        task_ids: Sequence[str],
        *,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Mutation:
        """Remove these tasks for good, with all they have. Raises as `redrive` does."""
        task_ids = named(task_ids)
        self._queues.settings(queue)
        op_id = self._ids.task_id()
        return self._each(
            Operation.PURGE,
            queue,
            task_ids,
            lambda entry: self._redriver.purge(entry, op_id=op_id),
            detail={"ids": [*task_ids]},
            reason=reason,
            dry_run=dry_run,
        )

    def _each(
        self,
        operation: Operation,
        queue: str,
        task_ids: Sequence[str],
        change: Callable[[DeadEntry], object],
        *,
        detail: dict[str, Any],
        reason: str | None,
        dry_run: bool,
    ) -> Mutation:
        if dry_run:
            return self._changed(queue, task_ids, None)
        with self._auditor.recorded(operation, queue, reason=reason, detail=detail) as result:
            done = self._changed(queue, task_ids, change)
            result.update(done.counts)
        return done

    def _changed(
        self, queue: str, task_ids: Sequence[str], change: Callable[[DeadEntry], object] | None
    ) -> Mutation:
        tally = Mutation(selected=len(task_ids), dry_run=change is None)
        for task_id in task_ids:
            try:
                entry = self._dead(queue, task_id)
                if change is not None:
                    change(entry)
                    tally = replace(tally, done=tally.done + 1)
            except REFUSALS as refusal:
                tally = tally.refused(refusal)
        return tally

    def _dead(self, queue: str, task_id: str) -> DeadEntry:
        """The entry of an id. Raises what says why it has none in this queue."""
        entry = self._store.dead_entry(task_id)
        if entry is not None and entry.queue == queue:
            return entry
        task = self._existing(task_id)
        problem = (
            f"is {task.status}, not DEAD"
            if task.queue == queue
            else f"is in queue {task.queue}, not {queue}"
        )
        raise TaskConflict(
            f"task {task_id} {problem}", task_id=task_id, hint=f"rdq task get {task_id}"
        )

    def _existing(self, task_id: str) -> Task:
        task = self._store.get(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id}", task_id=task_id)
        return task

    def _told(self, edit: Edit, task_ids: Sequence[str]) -> dict[str, Any]:
        """An edit as the audit log has it: of payloads the digests alone."""
        told: dict[str, Any] = {
            name: value
            for name in ("handler_ref", "handler_version", "unpin", "payload_content_type")
            if (value := getattr(edit, name))
        }
        if edit.payload is not None:
            before = self._existing(task_ids[0]).payload
            told |= {"payload_sha256": {"before": _digest(before), "after": _digest(edit.payload)}}
        return {"edit": told} if told else {}


def _digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
