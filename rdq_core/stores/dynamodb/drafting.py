"""A new task as it will be written: what is put before, and the state row whose write decides."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rdq_core.domain import lifecycle
from rdq_core.domain.task import Task
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb import contents
from rdq_core.stores.dynamodb.access import Access, partition_of
from rdq_core.stores.dynamodb.bodies import Outside, first_end
from rdq_core.stores.dynamodb.history import given_records
from rdq_core.stores.dynamodb.items import new_row, outside, room_for_body
from rdq_core.stores.dynamodb.records import Record
from rdq_core.stores.dynamodb.references import digests_of, in_row, reference_items
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.values import Item, item_size, text


@dataclass(frozen=True, slots=True)
class NewTaskItems:
    """A submit as it will be sent: the row, and what is put before it. It is made once and repeated
    unchanged.
    """

    row: lifecycle.Row
    item: Item = field(repr=False)
    records: Sequence[Record] = field(repr=False)
    references: Sequence[Item]
    digests: tuple[str, ...]
    body: Outside | None = None

    @property
    def task(self) -> Task:
        """The task as it is once the row is written."""
        return self.row.task

    @property
    def now(self) -> datetime:
        """The moment of the submit."""
        return self.row.task.created_at


def drafted(access: Access, task: Task, shards: int) -> NewTaskItems:
    """A task's items, under a life of their own. Raises InputInvalid when its body needs a bucket
    and there is none.
    """
    now = access.clock.now()
    row = lifecycle.submitted(task, life=access.ids.nonce(), now=now)
    records = given_records(row.task.attempts, row.life)
    ends_at = first_end(due_at=row.task.next_attempt_at or now, now=now)
    digests = digests_of(row.task)
    references = reference_items(row.task, row.life, ends_at)
    item = new_row(row, partition=partition_of(row.task, shards)) | in_row(digests, ends_at)
    if records:
        item[Attr.LAST_ATTEMPT] = text(records[-1].key)
    inline = contents.inline_body(row.task)
    if item_size(inline) <= room_for_body(item):
        return NewTaskItems(row, item | inline, records, references, digests)
    body = access.bodies.body(row.task, access.ids.nonce(), ends_at, life=row.life)
    item |= outside(body.ref, ends_at, len(row.task.payload))
    return NewTaskItems(row, item, records, references, digests, body)


def put_before(access: Access, new: NewTaskItems) -> None:
    """Store what the row will name. Until then nobody sees it, and it goes by itself."""
    if new.body is not None:
        access.bodies.put(new.body)
    for record in new.records:
        access.history.put(new.task.id, record)
    access.references.put(new.references)


def put_all_before(access: Access, new: Sequence[NewTaskItems]) -> None:
    """The same for many tasks, in batches."""
    access.bodies.put_all([each.body for each in new if each.body is not None])
    access.history.put_all([(each.task.id, record) for each in new for record in each.records])
    access.references.put([item for each in new for item in each.references])


def discard_loser(access: Access, new: NewTaskItems) -> None:
    """Delete what was put, once another life holds the id: nobody will ever name it. What stays is
    cleaned up later.
    """
    with contextlib.suppress(StoreFailed):
        if new.records:
            access.history.discard(new.task.id, [record.key for record in new.records])
        if new.body is not None:
            access.bodies.discard(new.task.id, bodies=(new.body.ref,))
        access.references.discard(new.task.id, new.row.life, new.digests)
