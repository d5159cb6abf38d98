"""Cancelling and forgetting tasks.

The invariant: each operation is on the audit log before its first write.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rdq_core.domain.references import Reference
from rdq_core.engine.auditor import Auditor
from rdq_core.ops.audit_reader import ALL_QUEUES
from rdq_core.ops.mutation import REFUSALS, Mutation
from rdq_core.ops.parts import OperatorParts
from rdq_core.ops.tasks import TaskFilter, TaskReader

AT_ONCE: Final = 500
"""The number of a queue's tasks that one request cancels at most."""


class TaskEditor:
    """Changes tasks for the principal of the `auditor`."""

    def __init__(self, parts: OperatorParts, auditor: Auditor) -> None:
        self._parts = parts
        self._auditor = auditor
        self._reader = TaskReader(parts)
        self._canceller = parts.canceller()

    def cancel(self, task_ids: Sequence[str], *, reason: str | None = None) -> Mutation:
        """Cancel tasks that wait or run.

        A task that has ended is skipped, its refusal naming the status. The others are recorded on
        the audit logs of their queues before the first task of each queue is cancelled. Raises
        InputInvalid for a malformed id, none or too many, before anything is changed; StoreFailed
        and Unavailable when the operation can't be recorded: ask again, which cancels the rest.
        """
        by_queue, tally = self._reader.cancellable(task_ids)
        for queue, ids in by_queue.items():
            tally = tally.with_outcomes_of(self._cancel(queue, ids, reason=reason, detail={}))
        return tally

    def cancel_matching(
        self,
        queue: str,
        chosen: TaskFilter,
        *,
        reason: str | None = None,
        cursor: str | None = None,
    ) -> tuple[Mutation, str | None]:
        """Cancel the next tasks of a queue that meet the conditions.

        The second value is the cursor to continue with, None at the end. The tasks are on the audit
        log before the first is cancelled. Raises QueueNotFound, StaleCursor.
        """
        page = self._reader.live(queue, chosen, page_size=AT_ONCE, cursor=cursor)
        if not page.items:
            return Mutation(), page.next_cursor
        detail = {"status": chosen.status, "handler": chosen.handler}
        ids = [each.task_id for each in page.items]
        return self._cancel(queue, ids, reason=reason, detail=detail), page.next_cursor

    def _cancel(
        self, queue: str, task_ids: Sequence[str], *, reason: str | None, detail: Mapping[str, Any]
    ) -> Mutation:
        op_id = self._parts.ids.nonce()
        done = Mutation(selected=len(task_ids))
        noted = {**detail, "ids": [*task_ids]}
        with self._auditor.recorded("task.cancel", queue, reason=reason, detail=noted) as result:
            for task_id in task_ids:
                try:
                    self._canceller.cancel(task_id, op_id=op_id)
                    done = replace(done, done=done.done + 1)
                except REFUSALS as refusal:
                    done = done.refused(refusal)
            result.update(done.counts)
        return done

    def forget(self, reference: Reference, *, reason: str | None = None) -> Mutation:
        """Remove every task of a target or requester, in any status and queue, with payload,
        history and result.

        The record has the SHA-256 of the target or requester, never its text: a forgotten person
        must not live on in a log that no one can delete from. Raises StoreFailed and Unavailable:
        some tasks may be removed by then; ask again, which removes the rest.
        """
        digest = hashlib.sha256(reference.value.encode()).hexdigest()
        detail = {f"{reference.kind}_sha256": digest}
        with self._auditor.recorded(
            "task.forget", ALL_QUEUES, reason=reason, detail=detail
        ) as result:
            number = self._parts.store.forget(reference, now=self._parts.clock.now())
            done = Mutation(selected=number, done=number)
            result.update(done.counts)
        return done
