"""Storing a new task: body and earlier failures first, then the state row, whose condition decides."""

import contextlib
from dataclasses import dataclass
from datetime import datetime

from rdq_core.domain import lifecycle
from rdq_core.domain.task import Task
from rdq_core.engine.ports import Submission
from rdq_core.errors import StoreFailed, TaskConflict
from rdq_core.stores.dynamodb import contents
from rdq_core.stores.dynamodb.access import Access, partition_of, values_at
from rdq_core.stores.dynamodb.bodies import Outside, first_end
from rdq_core.stores.dynamodb.expressions import HAS_EXPIRED, IS_ABSENT, any_of
from rdq_core.stores.dynamodb.history import given_records
from rdq_core.stores.dynamodb.items import StateRow, new_row, outside, read_row, room_for_body
from rdq_core.stores.dynamodb.reading import as_written, whole
from rdq_core.stores.dynamodb.records import Record
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.transact import ConditionFailed
from rdq_core.stores.dynamodb.values import Item, item_size, text


@dataclass(frozen=True, slots=True)
class _Draft:
    """A submit as it will be sent: the row, and what is put before it."""

    row: lifecycle.Row
    item: Item
    records: list[Record]
    body: Outside | None = None


class Submitting:
    """The verb of whoever has work."""

    _access: Access

    def submit(self, task: Task, *, shards: int) -> Submission:
        """See `TaskStore.submit`."""
        access, now = self._access, self._access.clock.now()
        draft = self._draft(task, shards, now)
        if draft.body is not None:
            access.bodies.put(draft.body)
        for record in draft.records:
            access.history.put(task.id, record)
        try:
            access.sender.put(access.tables.tasks, draft.item, any_of(IS_ABSENT, HAS_EXPIRED), values_at(now))
        except ConditionFailed as refused:
            return self._already_there(draft, refused)
        return Submission(draft.row.task, created=True)

    def _draft(self, task: Task, shards: int, now: datetime) -> _Draft:
        row = lifecycle.submitted(task, life=self._access.ids.nonce(), now=now)
        records = given_records(row.task.attempts, row.life)
        item = new_row(row, partition=partition_of(row.task, shards))
        if records:
            item[Attr.LAST_ATTEMPT] = text(records[-1].key)
        inline = contents.inline_body(row.task)
        if item_size(inline) <= room_for_body(item):
            return _Draft(row, item | inline, records)
        ends_at = first_end(due_at=row.task.next_attempt_at or now, now=now)
        body = self._access.bodies.body(row.task, self._access.ids.nonce(), ends_at)
        return _Draft(row, item | outside(body.ref, ends_at, len(row.task.payload)), records, body)

    def _already_there(self, draft: _Draft, refused: ConditionFailed) -> Submission:
        task = draft.row.task
        if refused.row is None:
            raise _came_and_went(task)
        stored = read_row(refused.row)
        if stored.life == draft.row.life:
            return Submission(as_written(self._access, stored), created=True)
        if not refused.in_doubt:
            self._discard(draft, stored)
        if stored.task.queue != task.queue:
            raise TaskConflict(f"task {task.id} exists in queue {stored.task.queue}", task_id=task.id)
        present = whole(self._access, stored)
        if present is None:
            raise _came_and_went(task)
        return Submission(present, created=False)

    def _discard(self, draft: _Draft, stored: StateRow) -> None:
        # Another life holds the id, and no try of ours is under way that could still come when that one has ended: so
        # nobody will ever name what this one had put. What stays is cleaned up later.
        with contextlib.suppress(StoreFailed):
            if draft.records:
                self._access.history.discard(stored.task.id, [record.key for record in draft.records])
            if draft.body is not None:
                self._access.bodies.discard(stored.task.id, bodies=(draft.body.ref,))


def _came_and_went(task: Task) -> StoreFailed:
    return StoreFailed(
        f"task {task.id} came and went while it was submitted",
        may_have_happened=True,
        task_id=task.id,
        hint="submit it again: nothing is stored under its id now",
    )
