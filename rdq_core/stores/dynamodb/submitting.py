"""Storing a new task: what its row will name first, then the row, whose condition decides."""

from rdq_core.domain.references import forgotten
from rdq_core.domain.task import Task
from rdq_core.engine.ports import Submission
from rdq_core.errors import StoreFailed, TaskConflict
from rdq_core.stores.dynamodb.access import Access, after_a_write, values_at
from rdq_core.stores.dynamodb.drafting import NewTaskItems, discard_loser, drafted, put_before
from rdq_core.stores.dynamodb.expressions import HAS_EXPIRED, IS_ABSENT, any_of
from rdq_core.stores.dynamodb.forgetting import end_life, is_row_forgotten
from rdq_core.stores.dynamodb.items import read_row
from rdq_core.stores.dynamodb.reading import as_written, whole
from rdq_core.stores.dynamodb.transact import ConditionFailed


class Submitting:
    """The verb of whoever has work."""

    _access: Access

    def submit(self, task: Task, *, shards: int) -> Submission:
        """See `TaskStore.submit`."""
        new = drafted(self._access, task, shards)
        put_before(self._access, new)
        return put_row(self._access, new)


def put_row(access: Access, new: NewTaskItems) -> Submission:
    """Write the row, or find out what is there in its place: our own of an earlier try, or
    another's.

    Raises TaskConflict when the id is another queue's, or the task was forgotten meanwhile.
    """
    try:
        access.sender.put(
            access.tables.tasks, new.item, any_of(IS_ABSENT, HAS_EXPIRED), values_at(new.now)
        )
    except ConditionFailed as refused:
        return _already_there(access, new, refused)
    return checked(access, new, Submission(new.task, created=True))


def checked(access: Access, new: NewTaskItems, submission: Submission) -> Submission:
    """The submission, unless the task's target or requester was forgotten while it was stored: then
    it goes again.

    A task without references costs no read.
    """
    with after_a_write():
        if not access.references.are_forgotten(new.digests, new.now):
            return submission
        end_life(access, new.task.id, new.row.life)
        access.references.discard(new.task.id, new.row.life, new.digests)
    raise forgotten(new.task.id)


def _already_there(access: Access, new: NewTaskItems, refused: ConditionFailed) -> Submission:
    task = new.task
    if refused.row is None:
        raise _came_and_went(task)
    stored = read_row(refused.row)
    if stored.life == new.row.life:
        return checked(access, new, Submission(as_written(access, stored), created=True))
    if is_row_forgotten(access, stored):
        # Its submitter died before it could find out.
        end_life(access, task.id, stored.life)
        return put_row(access, new)
    if (
        not refused.in_doubt
    ):  # else a try of ours may yet come, when the other life has ended, and name what was put
        discard_loser(access, new)
    if stored.task.queue != task.queue:
        raise TaskConflict(f"task {task.id} exists in queue {stored.task.queue}", task_id=task.id)
    present = whole(access, stored)
    if present is None:
        raise _came_and_went(task)
    return Submission(present, created=False)


def _came_and_went(task: Task) -> StoreFailed:
    return StoreFailed(
        f"task {task.id} came and went while it was submitted",
        may_have_happened=True,
        task_id=task.id,
        hint="submit it again: nothing is stored under its id now",
    )
