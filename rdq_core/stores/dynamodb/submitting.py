"""Storing a new task: first what its row will name, then the row, whose condition decides.

    body · attempt records · references ──► state row ──► the tombstones, if it has references

The invariant: whatever is put before the row is invisible until the row names it, and expires by
TTL if no row ever does.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from rdq_core.domain import lifecycle
from rdq_core.domain.references import forgotten, references_of
from rdq_core.domain.task import Task
from rdq_core.engine.ports import Submission
from rdq_core.errors import StoreFailed, TaskConflict
from rdq_core.stores.dynamodb.access import Access, after_a_write
from rdq_core.stores.dynamodb.bodies import LIFE, ContentItem
from rdq_core.stores.dynamodb.expressions import HAS_EXPIRED, IS_ABSENT, any_of, values_at
from rdq_core.stores.dynamodb.forgetting import end_life, is_row_forgotten
from rdq_core.stores.dynamodb.history import Record, submitted_records
from rdq_core.stores.dynamodb.reading import read_own_write, read_task
from rdq_core.stores.dynamodb.references import in_row, reference_items
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.sender import ConditionFailed
from rdq_core.stores.dynamodb.state_row import (
    body_pointer,
    inline_body,
    new_row,
    read_row,
    room_for_body,
)
from rdq_core.stores.dynamodb.values import Item, item_size, text


@dataclass(frozen=True, slots=True)
class NewTaskItems:
    """A submit as it will be sent: `item` is the row of `task`, the rest is put before it.

    It is built once and sent again unchanged.
    """

    task: Task
    life: str
    item: Item = field(repr=False)
    records: Sequence[Record] = field(default=(), repr=False)
    references: Sequence[Item] = ()
    digests: tuple[str, ...] = ()
    body: ContentItem | None = None


class SubmitVerbs:
    """`submit` of `TaskStore`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def submit(self, task: Task, *, shards: int) -> Submission:
        """See `TaskStore.submit`."""
        new = draft(self._access, task, shards)
        put_prerequisites(self._access, new)
        return put_row(self._access, new)


def draft(access: Access, task: Task, shards: int) -> NewTaskItems:
    """The items of a new task, under a new life. Raises InputInvalid when its body needs a bucket
    and there is none.
    """
    now = access.clock.now()
    row = lifecycle.submitted(task, life=access.ids.nonce(), now=now)
    task = row.task
    # What is put before the row has to outlast the wait for the first attempt.
    ends_at = max(now, task.next_attempt_at or now) + LIFE
    records = submitted_records(task.attempts, row.life) if task.attempts else []
    digests = tuple(reference.digest for reference in references_of(task))
    references = reference_items(task, digests, row.life, ends_at) if digests else []
    item = new_row(row, shards=shards)
    if records:
        item[Attr.LAST_ATTEMPT] = text(records[-1].key)
    if digests:
        item |= in_row(digests, ends_at)
    inline = inline_body(task)
    if item_size(inline) <= room_for_body(item):
        return NewTaskItems(task, row.life, item | inline, records, references, digests)
    body = access.bodies.body(task, access.ids.nonce(), ends_at, life=row.life)
    item |= body_pointer(body.ref, ends_at, len(task.payload))
    return NewTaskItems(task, row.life, item, records, references, digests, body)


def put_prerequisites(access: Access, new: NewTaskItems) -> None:
    """Store what the row will name."""
    if new.body is not None:
        access.bodies.put(new.body)
    for record in new.records:
        access.history.put(new.task.id, record)
    if new.references:
        access.references.put(new.references)


def discard_prerequisites(access: Access, new: NewTaskItems) -> None:
    """Delete what was put, now that another life has the id and no row will ever name it. What a
    failure leaves behind is an orphan.
    """
    with contextlib.suppress(StoreFailed):
        if new.records:
            access.history.discard(new.task.id, [record.key for record in new.records])
        if new.body is not None:
            access.bodies.discard(new.task.id, bodies=(new.body.ref,))
        if new.digests:
            access.references.discard(new.task.id, new.life, new.digests)


def put_row(access: Access, new: NewTaskItems) -> Submission:
    """Write the row, or find out what has its id: our own row of an earlier attempt, or another
    task.

    Raises TaskConflict when the id belongs to another queue, or the task was forgotten meanwhile.
    """
    condition, values = any_of(IS_ABSENT, HAS_EXPIRED), values_at(new.task.created_at)
    try:
        access.sender.put(access.tables.tasks, new.item, condition, values)
    except ConditionFailed as refused:
        return _existing(access, new, refused)
    if new.digests:
        check_not_forgotten(access, new)
    return Submission(new.task, created=True)


def check_not_forgotten(access: Access, new: NewTaskItems) -> None:
    """Remove a task whose target or requester was forgotten while it was stored, and raise
    TaskConflict.

    The tombstone is read after the row was written, and a forget puts its tombstone before it reads
    the references: whichever comes second sees the other.
    """
    with after_a_write():
        if not access.references.are_forgotten(new.digests, new.task.created_at):
            return
        end_life(access, new.task.id, new.life)
        access.references.discard(new.task.id, new.life, new.digests)
    raise forgotten(new.task.id)


def _existing(access: Access, new: NewTaskItems, refused: ConditionFailed) -> Submission:
    task = new.task
    if refused.row is None:
        raise _removed_meanwhile(task)
    stored = read_row(refused.row)
    if stored.life == new.life:
        submission = Submission(read_own_write(access, stored), created=True)
        check_not_forgotten(access, new)
        return submission
    if is_row_forgotten(access, stored):
        # It was forgotten while it was submitted, and its submitter died before it could check.
        end_life(access, task.id, stored.life)
        return put_row(access, new)
    if not refused.in_doubt:
        # In doubt, an earlier attempt of ours may still arrive when that task's retention is over,
        # and its row would name what was put.
        discard_prerequisites(access, new)
    if stored.task.queue != task.queue:
        raise TaskConflict(f"task {task.id} exists in queue {stored.task.queue}", task_id=task.id)
    present = read_task(access, stored)
    if present is None:
        raise _removed_meanwhile(task)
    return Submission(present, created=False)


def _removed_meanwhile(task: Task) -> StoreFailed:
    return StoreFailed(
        f"a task {task.id} existed, and was removed while it was submitted again",
        may_have_happened=True,
        task_id=task.id,
        hint="submit it again: nothing is stored under its id now",
    )
