"""Tasks as operators stop them, whatever state they are in."""

from collections.abc import Iterable
from dataclasses import replace

from rdq_core.domain.ids import check_id
from rdq_core.engine.cancel import Canceller
from rdq_core.engine.ports import IdSource, TaskStore
from rdq_core.errors import CorruptItem, InputInvalid, RdqError, StoreFailed, TaskConflict, TaskNotFound
from rdq_core.ops.mutation import Mutation


class TaskDesk:
    """Requests about single tasks."""

    def __init__(self, store: TaskStore, canceller: Canceller, *, ids: IdSource) -> None:
        self._store = store
        self._canceller = canceller
        self._ids = ids

    def cancel(self, task_ids: Iterable[str], *, dry_run: bool = False) -> Mutation:
        """Stop tasks that wait or run. `dry_run` counts those that it would stop and changes nothing.

        A task that has ended is skipped, its refusal naming the state. Raises InputInvalid for what is no id, before
        anything is changed, and when there is none at all.
        """
        wanted = tuple(dict.fromkeys(check_id(task_id) for task_id in task_ids))
        if not wanted:
            raise InputInvalid("id", "is missing: give at least one")
        op_id = self._ids.nonce()
        tally = Mutation(selected=len(wanted), dry_run=dry_run)
        for task_id in wanted:
            refusal = self._obstacle(task_id) if dry_run else self._cancel(task_id, op_id)
            if refusal is not None:
                tally = tally.refused(refusal)
            elif not dry_run:
                tally = replace(tally, done=tally.done + 1)
        return tally

    def _cancel(self, task_id: str, op_id: str) -> RdqError | None:
        try:
            self._canceller.cancel(task_id, op_id=op_id)
        except (TaskConflict, TaskNotFound, StoreFailed, CorruptItem) as refusal:
            return refusal
        return None

    def _obstacle(self, task_id: str) -> RdqError | None:
        """Why it would not be stopped."""
        try:
            task = self._store.get(task_id)
        except (StoreFailed, CorruptItem) as failed:
            return failed
        if task is None:
            return TaskNotFound(f"no task {task_id}", task_id=task_id)
        return TaskConflict(f"task {task_id} is {task.status}", task_id=task_id) if task.status.is_terminal else None
