"""What people do to tasks: cancel, redrive, purge.

The state row is read first, to know what must be written. Whether it may be written is for the
write's own condition alone, and the row that comes back with a refusal says why.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lifecycle import NO_EDIT, Edit, Verb, allowed, conflict, edited
from rdq_core.domain.task import Status, Task
from rdq_core.errors import RdqError, StoreFailed, TaskConflict, TaskNotFound
from rdq_core.stores.dynamodb import contents
from rdq_core.stores.dynamodb.access import Access, key, partition_of, values_at
from rdq_core.stores.dynamodb.bodies import Outside, first_end
from rdq_core.stores.dynamodb.expressions import (
    DIED_THEN,
    HAS_NOT_EXPIRED,
    IS_DEAD,
    IS_LIVE,
    IS_NOT_DONE,
    IS_THIS_LIFE,
    NAMES_NO_BODY,
    NAMES_SEEN_BODY,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.items import SUBMITTED, StateRow, outside, read_row, room_for_body
from rdq_core.stores.dynamodb.reading import as_written
from rdq_core.stores.dynamodb.schema import ENTRY, STATE, Attr
from rdq_core.stores.dynamodb.settling import ENDS, ended_at
from rdq_core.stores.dynamodb.transact import ConditionFailed, conditioned
from rdq_core.stores.dynamodb.values import Item, Value, item_size, moment, number, text

_LOOKS: Final = 4
BODY: Final = (
    Attr.PAYLOAD,
    Attr.CONTENT_TYPE,
    Attr.META,
    Attr.BODY_REF,
    Attr.BODY_ENDS_AT,
    Attr.PAYLOAD_SIZE,
)
"""What a row says of its body, wherever that is."""


@dataclass(frozen=True, slots=True)
class _NewBody:
    """Where the body of an edited task goes. `body` is put before the row names it, None when no
    new one is needed.
    """

    sets: Item
    removes: Sequence[Attr] = ()
    body: Outside | None = None

    @property
    def ref(self) -> str | None:
        """The new body's name."""
        return None if self.body is None else self.body.ref


class Redriving:
    """The verbs of an operator."""

    _access: Access

    def cancel(
        self, task_id: str, *, now: datetime, op_id: str, expires_at: datetime | None
    ) -> Task:
        """See `TaskStore.cancel`. A task that is edited meanwhile is looked at again, for its new
        body's sake.

        One that is gone by then is not found: whoever submitted another one under its id has not
        asked for its end.
        """
        row = self._there(task_id, now)
        for _ in range(_LOOKS):
            try:
                item = self._end_as_cancelled(row, now=now, op_id=op_id, expires_at=expires_at)
            except ConditionFailed as refused:
                item = _done_by(op_id, refused.row, Status.CANCELLED) or {}
                if not item:
                    row = _still_live(row, refused.row, now)
                    continue
            cancelled = read_row(item)
            self._access.free_slot(cancelled.task, cancelled.fencing_token)
            return as_written(self._access, cancelled)
        raise TaskConflict(
            f"task {task_id} was edited each time it was about to be cancelled; try again"
        )

    def _end_as_cancelled(
        self, row: StateRow, *, now: datetime, op_id: str, expires_at: datetime | None
    ) -> Item:
        kept, forgotten = self._access.keep_for_row(row, expires_at=expires_at, now=now)
        sets = {
            **ended_at(Status.CANCELLED, now=now, expires_at=expires_at),
            Attr.OP_ID: text(op_id),
            **kept,
        }
        body = NAMES_NO_BODY if row.body_ref is None else NAMES_SEEN_BODY
        return self._access.update_state(
            row.task.id,
            change(sets, (*ENDS, *forgotten)),
            all_of(IS_THIS_LIFE, IS_LIVE, body),
            {**values_at(now), ":life": text(row.life), ":seen_body": text(row.body_ref or "")},
        )

    def redrive(
        self, entry: DeadEntry, edit: Edit, *, now: datetime, op_id: str, shards: int
    ) -> Task:
        """See `TaskStore.redrive`. The same `op_id` redrives a task once, however often it asks."""
        row = self._there(entry.task_id, now)
        sent_back = _sent_back(row, edit, now=now, op_id=op_id, shards=shards)
        body = self._body_after(row, edit, sent_back, now)
        if body.body is not None:
            self._access.bodies.put(body.body)
        sets = {
            **sent_back,
            **body.sets,
            **self._access.references.keep_for_run(row, due_at=now, now=now),
        }
        removes = (Attr.COMPLETED_AT, Attr.EXPIRES_AT, *_unpinned(edit), *body.removes)
        values = {**_death_seen(entry, now), ":op_id": text(op_id)}
        condition = all_of(IS_DEAD, DIED_THEN, HAS_NOT_EXPIRED, IS_NOT_DONE)
        update = self._access.part(entry.task_id, change(sets, removes), condition, values)
        try:
            self._with_entry("Update", update, entry)
        except ConditionFailed as refused:
            return self._refused_redrive(row, op_id, refused.row, body, now)
        self._replaced(row, body)
        return as_written(self._access, read_row(_after(row.item, sets, removes)))

    # what is gone needs no mark
    def purge(self, entry: DeadEntry, *, now: datetime, op_id: str) -> None:  # noqa: ARG002
        """See `TaskStore.purge`."""
        row = self._there(entry.task_id, now)
        delete = {"TableName": self._access.tables.tasks, "Key": key(entry.task_id, STATE)}
        condition = all_of(IS_DEAD, DIED_THEN, HAS_NOT_EXPIRED)
        try:
            self._with_entry(
                "Delete", conditioned(delete, condition, _death_seen(entry, now)), entry
            )
        except ConditionFailed as refused:
            # It was there when we looked, so that it is gone is what was asked for, and most likely
            # our own doing.
            if refused.row is not None:
                raise _refusal(entry.task_id, refused.row, Verb.PURGE, now) from None
        with contextlib.suppress(StoreFailed):
            self._access.history.discard_life(entry.task_id, row.life)
            self._access.bodies.discard(
                entry.task_id, bodies=(row.body_ref,), results=(row.result_ref,)
            )
            self._access.references.discard(entry.task_id, row.life, row.references)

    def _there(self, task_id: str, now: datetime) -> StateRow:
        row = self._access.living(task_id, now)
        if row is None:
            raise _not_found(task_id)
        return row

    def _with_entry(self, action: str, part: Mapping[str, Any], entry: DeadEntry) -> None:
        delete = {"TableName": self._access.tables.dlq, "Key": key(entry.task_id, ENTRY)}
        self._access.sender.transact(
            [{action: part}, {"Delete": delete}], nonce=self._access.ids.nonce()
        )

    def _body_after(self, row: StateRow, edit: Edit, sent_back: Item, now: datetime) -> _NewBody:
        """Where the body goes: it stays where it is, unless it is edited or the row's new names
        leave it no room.
        """
        if edit == NO_EDIT:
            return _NewBody(self._access.bodies.keep_for_run(row, due_at=now, now=now))
        task = edited(replace(row.task, **self._access.bodies.fields(row)), edit)
        lean = {
            attr: value for attr, value in {**row.item, **sent_back}.items() if attr in SUBMITTED
        }
        inline = contents.inline_body(task)
        if item_size(inline) <= room_for_body(lean):
            return _NewBody(inline, [attr for attr in BODY if attr not in inline])
        if edit.payload is None and edit.payload_content_type is None and row.body_ref is not None:
            return _NewBody(self._access.bodies.keep_for_run(row, due_at=now, now=now))
        ends_at = first_end(due_at=now, now=now)
        body = self._access.bodies.body(task, self._access.ids.nonce(), ends_at, life=row.life)
        sets = outside(body.ref, ends_at, len(task.payload))
        return _NewBody(sets, [attr for attr in BODY if attr not in sets], body)

    def _refused_redrive(
        self,
        row: StateRow,
        op_id: str,
        came_back: Mapping[str, Any] | None,
        body: _NewBody,
        now: datetime,
    ) -> Task:
        task_id = row.task.id
        done = _done_by(op_id, came_back)
        if done is None:
            if came_back is not None:
                self._discard_body(task_id, body.ref)
            raise _refusal(task_id, came_back, Verb.REDRIVE, now)
        stored = read_row(done)
        if stored.body_ref == body.ref:
            self._replaced(row, body)
        else:
            self._discard_body(task_id, body.ref)
        return as_written(self._access, stored)

    def _replaced(self, row: StateRow, body: _NewBody) -> None:
        # A body with an end goes by itself, for nothing; deleting it would cost its whole size.
        if Attr.BODY_REF in (*body.sets, *body.removes) and row.body_ends_at is None:
            self._discard_body(row.task.id, row.body_ref)

    def _discard_body(self, task_id: str, ref: str | None) -> None:
        with contextlib.suppress(StoreFailed):
            self._access.bodies.discard(task_id, bodies=(ref,))


def _sent_back(row: StateRow, edit: Edit, *, now: datetime, op_id: str, shards: int) -> Item:
    return {
        Attr.STATUS: text(Status.PENDING),
        Attr.DUE_AT: moment(now),
        Attr.QUEUE_SHARD: text(partition_of(row.task, shards)),
        Attr.ATTEMPT_COUNT: number(0),
        Attr.REDRIVE_COUNT: number(row.task.redrive_count + 1),
        Attr.OP_ID: text(op_id),
        **_names(edited(row.task, edit)),
    }


def _names(task: Task) -> Item:
    names: Item = {Attr.HANDLER_REF: text(task.handler_ref)}
    return (
        names
        if task.handler_version is None
        else {**names, Attr.HANDLER_VERSION: text(task.handler_version)}
    )


def _unpinned(edit: Edit) -> tuple[Attr, ...]:
    return (Attr.HANDLER_VERSION,) if edit.unpin else ()


def _death_seen(entry: DeadEntry, now: datetime) -> dict[str, Value]:
    return {**values_at(now), ":dead_at": moment(entry.dead_at)}


def _after(item: Mapping[str, Any], sets: Item, removes: Sequence[Attr]) -> Item:
    return {attr: value for attr, value in {**item, **sets}.items() if attr not in removes}


def _done_by(
    op_id: str, came_back: Mapping[str, Any] | None, status: Status | None = None
) -> Item | None:
    """The row that came back, when this very request had changed it before."""
    if came_back is None or came_back.get(Attr.OP_ID) != text(op_id):
        return None
    return dict(came_back) if status is None or came_back.get(Attr.STATUS) == text(status) else None


def _still_live(seen: StateRow, came_back: Mapping[str, Any] | None, now: datetime) -> StateRow:
    """The row that refused a cancel, when it is another body alone that was in the way."""
    row, task_id = None if came_back is None else read_row(came_back), seen.task.id
    if row is not None and row.life != seen.life:
        raise _not_found(task_id)
    if row is None or row.is_gone(now) or Verb.CANCEL not in allowed(row.task.status):
        raise _refusal(task_id, came_back, Verb.CANCEL, now)
    return row


def _refusal(
    task_id: str, came_back: Mapping[str, Any] | None, verb: Verb, now: datetime
) -> RdqError:
    row = None if came_back is None else read_row(came_back)
    if row is None or row.is_gone(now):
        return _not_found(task_id)
    return conflict(task_id, row.task.status, verb)


def _not_found(task_id: str) -> TaskNotFound:
    return TaskNotFound(f"no task {task_id}", task_id=task_id)
