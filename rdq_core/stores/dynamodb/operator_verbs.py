"""What operators do to tasks: cancel, redrive, purge.

The state row is read first, to compute the write. Whether it may be written is decided by the
write's own condition, and the row that comes back with a refusal says why not.
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
from rdq_core.stores.dynamodb.access import Access, key
from rdq_core.stores.dynamodb.bodies import ContentItem, first_end
from rdq_core.stores.dynamodb.concurrency_keys import free_key
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
    values_at,
)
from rdq_core.stores.dynamodb.reading import read_own_write
from rdq_core.stores.dynamodb.schema import ENTRY, STATE, Attr, partition_of
from rdq_core.stores.dynamodb.sender import ConditionFailed, conditioned
from rdq_core.stores.dynamodb.settling import ENDS_TASK, ended
from rdq_core.stores.dynamodb.state_row import (
    BODY,
    SUBMITTED,
    StateRow,
    body_pointer,
    inline_body,
    read_row,
    room_for_body,
)
from rdq_core.stores.dynamodb.values import Item, Value, item_size, moment, number, text

_CANCEL_ROUNDS: Final = 4


@dataclass(frozen=True, slots=True)
class _BodyChange:
    """Where the body of a redriven task goes. `new` is put before the row names it; None when no
    new item is needed.
    """

    sets: Item
    removes: Sequence[Attr] = ()
    new: ContentItem | None = None

    @property
    def new_ref(self) -> str | None:
        return None if self.new is None else self.new.ref


class OperatorVerbs:
    """`cancel`, `redrive` and `purge` of `TaskStore`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    # -- cancel ------------------------------------------------------------------------------------

    def cancel(
        self, task_id: str, *, now: datetime, op_id: str, expires_at: datetime | None
    ) -> Task:
        """See `TaskStore.cancel`.

        A task that is edited at the same time is read again, because its new body has to outlive
        it. One that is replaced by another task under its id is not found: the cancel was not about
        that one.
        """
        row = self._existing(task_id, now)
        for _ in range(_CANCEL_ROUNDS):
            try:
                item = self._write_cancelled(row, now=now, op_id=op_id, expires_at=expires_at)
            except ConditionFailed as refused:
                if not _is_done_by(op_id, refused.row, Status.CANCELLED):
                    row = _still_live(row, refused.row, now)
                    continue
                item = dict(refused.row or {})
            cancelled = read_row(item)
            free_key(self._access, cancelled.task, cancelled.fencing_token)
            return read_own_write(self._access, cancelled)
        raise TaskConflict(
            f"task {task_id} was edited each time it was about to be cancelled; try again"
        )

    def _write_cancelled(
        self, row: StateRow, *, now: datetime, op_id: str, expires_at: datetime | None
    ) -> Item:
        ends, unending = self._access.extend_for_row(row, expires_at=expires_at, now=now)
        sets = {
            **ended(Status.CANCELLED, now=now, expires_at=expires_at),
            Attr.OP_ID: text(op_id),
            **ends,
        }
        # The end of this very body was extended above: the row must still name it.
        body = NAMES_NO_BODY if row.body_ref is None else NAMES_SEEN_BODY
        return self._access.update_state(
            row.task.id,
            change(sets, (*ENDS_TASK, *unending)),
            all_of(IS_THIS_LIFE, IS_LIVE, body),
            {**values_at(now), ":life": text(row.life), ":seen_body": text(row.body_ref or "")},
        )

    # -- redrive -----------------------------------------------------------------------------------

    def redrive(
        self, entry: DeadEntry, edit: Edit, *, now: datetime, op_id: str, shards: int
    ) -> Task:
        """See `TaskStore.redrive`. One `op_id` redrives a task once, however often it is
        repeated.
        """
        row = self._existing(entry.task_id, now)
        sets = _redriven(row, edit, now=now, op_id=op_id, shards=shards)
        body = self._body_change(row, edit, sets, now)
        if body.new is not None:
            self._access.bodies.put(body.new)
        sets |= body.sets
        if row.references:
            sets |= self._access.references.extend_for_run(row, due_at=now, now=now)
        removes = [Attr.COMPLETED_AT, Attr.EXPIRES_AT, *body.removes]
        if edit.unpin:
            removes.append(Attr.HANDLER_VERSION)
        update = self._access.state_update(
            entry.task_id,
            change(sets, removes),
            all_of(IS_DEAD, DIED_THEN, HAS_NOT_EXPIRED, IS_NOT_DONE),
            {**_seen_death(entry, now), ":op_id": text(op_id)},
        )
        try:
            self._write_with_entry(update, entry)
        except ConditionFailed as refused:
            return self._refused_redrive(row, op_id, refused.row, body, now)
        self._discard_replaced(row, body)
        # A transaction returns no items, so the row as it is now is computed.
        after = {attr: value for attr, value in {**row.item, **sets}.items() if attr not in removes}
        return read_own_write(self._access, read_row(after))

    def _body_change(self, row: StateRow, edit: Edit, sets: Item, now: datetime) -> _BodyChange:
        """The body stays where it is, unless it is edited, or the row's new names leave it no
        room.
        """
        bodies = self._access.bodies
        if edit == NO_EDIT:
            return _BodyChange(bodies.extend_for_run(row, due_at=now, now=now))
        task = edited(replace(row.task, **bodies.fields(row)), edit)
        as_submitted = {
            attr: value for attr, value in {**row.item, **sets}.items() if attr in SUBMITTED
        }
        inline = inline_body(task)
        if item_size(inline) <= room_for_body(as_submitted):
            return _BodyChange(inline, [attr for attr in BODY if attr not in inline])
        if edit.payload is None and edit.payload_content_type is None and row.body_ref is not None:
            return _BodyChange(bodies.extend_for_run(row, due_at=now, now=now))
        ends_at = first_end(due_at=now, now=now)
        new = bodies.body(task, self._access.ids.nonce(), ends_at, life=row.life)
        pointer = body_pointer(new.ref, ends_at, len(task.payload))
        return _BodyChange(pointer, [attr for attr in BODY if attr not in pointer], new)

    def _refused_redrive(
        self,
        row: StateRow,
        op_id: str,
        refused_row: Mapping[str, Any] | None,
        body: _BodyChange,
        now: datetime,
    ) -> Task:
        task_id = row.task.id
        if refused_row is None or not _is_done_by(op_id, refused_row):
            if refused_row is not None:
                self._discard_body(task_id, body.new_ref)
            raise _refusal(task_id, refused_row, Verb.REDRIVE, now)
        stored = read_row(dict(refused_row))
        if stored.body_ref == body.new_ref:
            self._discard_replaced(row, body)
        else:
            self._discard_body(task_id, body.new_ref)
        return read_own_write(self._access, stored)

    def _discard_replaced(self, row: StateRow, body: _BodyChange) -> None:
        # TTL removes a body with an end for nothing; deleting it is billed by its whole size.
        if Attr.BODY_REF in (*body.sets, *body.removes) and row.body_ends_at is None:
            self._discard_body(row.task.id, row.body_ref)

    def _discard_body(self, task_id: str, ref: str | None) -> None:
        with contextlib.suppress(StoreFailed):
            self._access.bodies.discard(task_id, bodies=(ref,))

    # -- purge -------------------------------------------------------------------------------------

    # a purged row keeps no mark of the request
    def purge(self, entry: DeadEntry, *, now: datetime, op_id: str) -> None:  # noqa: ARG002
        """See `TaskStore.purge`."""
        row = self._existing(entry.task_id, now)
        delete = conditioned(
            {"TableName": self._access.tables.tasks, "Key": key(entry.task_id, STATE)},
            all_of(IS_DEAD, DIED_THEN, HAS_NOT_EXPIRED),
            _seen_death(entry, now),
        )
        try:
            self._write_with_entry({"Delete": delete}, entry)
        except ConditionFailed as refused:
            # The row existed when it was read. If it is gone, that is what was asked for, and most
            # likely an earlier attempt of ours removed it.
            if refused.row is not None:
                raise _refusal(entry.task_id, refused.row, Verb.PURGE, now) from None
        with contextlib.suppress(StoreFailed):
            # Only now that no row names them. What a failure leaves behind is removed as an orphan.
            self._access.history.discard_life(entry.task_id, row.life)
            self._access.bodies.discard(
                entry.task_id, bodies=(row.body_ref,), results=(row.result_ref,)
            )
            self._access.references.discard(entry.task_id, row.life, row.references)

    # -- shared ------------------------------------------------------------------------------------

    def _existing(self, task_id: str, now: datetime) -> StateRow:
        row = self._access.unexpired(task_id, now)
        if row is None:
            raise _not_found(task_id)
        return row

    def _write_with_entry(self, part: Mapping[str, Any], entry: DeadEntry) -> None:
        """Write the row and delete its DLQ entry in one transaction."""
        delete = {"TableName": self._access.tables.dlq, "Key": key(entry.task_id, ENTRY)}
        self._access.sender.transact(
            [dict(part), {"Delete": delete}], nonce=self._access.ids.nonce()
        )


def _redriven(row: StateRow, edit: Edit, *, now: datetime, op_id: str, shards: int) -> Item:
    """The attributes of a redriven row, apart from those of its body."""
    task = edited(row.task, edit)
    item: Item = {
        Attr.STATUS: text(Status.PENDING),
        Attr.DUE_AT: moment(now),
        Attr.QUEUE_SHARD: text(partition_of(row.task, shards)),
        Attr.ATTEMPT_COUNT: number(0),
        Attr.REDRIVE_COUNT: number(row.task.redrive_count + 1),
        Attr.OP_ID: text(op_id),
        Attr.HANDLER_REF: text(task.handler_ref),
    }
    if task.handler_version is not None:
        item[Attr.HANDLER_VERSION] = text(task.handler_version)
    return item


def _seen_death(entry: DeadEntry, now: datetime) -> dict[str, Value]:
    return {**values_at(now), ":dead_at": moment(entry.dead_at)}


def _is_done_by(
    op_id: str, refused_row: Mapping[str, Any] | None, status: Status | None = None
) -> bool:
    """Whether the row that came back was changed by this very request before."""
    return (
        refused_row is not None
        and refused_row.get(Attr.OP_ID) == text(op_id)
        and (status is None or refused_row.get(Attr.STATUS) == text(status))
    )


def _still_live(seen: StateRow, refused_row: Mapping[str, Any] | None, now: datetime) -> StateRow:
    """The row that refused a cancel, if only its body has changed. Raises the refusal otherwise."""
    row, task_id = None if refused_row is None else read_row(refused_row), seen.task.id
    if row is not None and row.life != seen.life:
        raise _not_found(task_id)
    if row is None or row.is_gone(now) or Verb.CANCEL not in allowed(row.task.status):
        raise _refusal(task_id, refused_row, Verb.CANCEL, now)
    return row


def _refusal(
    task_id: str, refused_row: Mapping[str, Any] | None, verb: Verb, now: datetime
) -> RdqError:
    row = None if refused_row is None else read_row(refused_row)
    if row is None or row.is_gone(now):
        return _not_found(task_id)
    return conflict(task_id, row.task.status, verb)


def _not_found(task_id: str) -> TaskNotFound:
    return TaskNotFound(f"no task {task_id}", task_id=task_id)
