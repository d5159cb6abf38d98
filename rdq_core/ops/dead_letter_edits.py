"""Redrives and purges of dead tasks: named ones at once, the others by a job.

The invariant: a task that died again during a request is left for the next one, and each request is
on the audit log before its first write.
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
from rdq_core.errors import TaskConflict, TaskNotFound
from rdq_core.ops.dead_letters import entries_of
from rdq_core.ops.job_control import SETTLES_WITHIN, JobControl
from rdq_core.ops.mutation import REFUSALS, Mutation
from rdq_core.ops.orders import Operation, Order, check_edit, check_order
from rdq_core.ops.parts import OperatorParts
from rdq_core.ops.preview import Preview, preview
from rdq_core.ops.selection import named


class DeadLetterEditor:
    """Changes dead tasks for the principal of the `auditor`."""

    def __init__(self, parts: OperatorParts, auditor: Auditor) -> None:
        self._store = parts.store
        self._queues = parts.queues
        self._redriver = parts.redriver()
        self._jobs = JobControl(parts)
        self._auditor = auditor
        self._clock = parts.clock
        self._ids = parts.ids

    # -- by a job ----------------------------------------------------------------------------------

    def preview(self, queue: str, order: Order) -> Preview:
        """The number of tasks that a job would change now, and its price. Nothing is changed.

        Raises QueueNotFound, InputInvalid for an order that doesn't fit, and TaskNotFound for a
        group of which none is dead.
        """
        settings = self._queues.settings(queue)
        check_order(order, settings)
        cutoff = self._clock.now() - SETTLES_WITHIN
        seen = preview(entries_of(self._store, queue), order, settings, cutoff=cutoff)
        group = order.selection.group
        if group is not None and not seen.selected + seen.young:
            raise TaskNotFound(
                f"no dead task of {queue} is of group {group}", hint=f"rdq dlq groups {queue}"
            )
        return seen

    def start(
        self, queue: str, order: Order, *, reason: str | None = None, expected: int | None = None
    ) -> Job:
        """Store a job, which any host may then advance. Raises as `JobControl.start` does."""
        return self._jobs.start(queue, order, self._auditor, reason=reason, expected=expected)

    # -- by ids ------------------------------------------------------------------------

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
        """Send the named tasks back: due now, with a full budget.

        `dry_run` counts them and changes nothing. Raises QueueNotFound, and InputInvalid for an
        edit that doesn't fit or too many ids.
        """
        task_ids = named(task_ids)
        check_edit(edit, self._queues.settings(queue), is_one=len(task_ids) == 1)
        op_id = self._ids.task_id()
        detail = {
            "ids": [*task_ids],
            **({"force": True} if force else {}),
            **self._recorded(edit, task_ids),
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
        """Remove the named tasks for good, with payload and history. Raises as `redrive` does."""
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
        """The entry of a task. TaskConflict or TaskNotFound unless it is dead in this queue."""
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

    def _recorded(self, edit: Edit, task_ids: Sequence[str]) -> dict[str, Any]:
        """An edit as the audit log has it: of payloads only the digests."""
        fields: dict[str, Any] = {
            name: value
            for name in ("handler_ref", "handler_version", "unpin", "payload_content_type")
            if (value := getattr(edit, name))
        }
        if edit.payload is not None:
            before = self._existing(task_ids[0]).payload
            fields |= {
                "payload_sha256": {"before": _digest(before), "after": _digest(edit.payload)}
            }
        return {"edit": fields} if fields else {}


def _digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
