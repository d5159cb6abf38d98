"""Forgetting: removing every task of a target or requester with all its items.

    forget   tombstone ─ every reference ─ each task: row with entry, records, bodies, references

The row goes first, so that a holder finds its lease lost. The reference goes last, so that a forget
that is repeated after a crash finds what is left. A row whose submitter died before it could read
the tombstone is removed at its first claim.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.references import Reference, is_forgotten
from rdq_core.domain.task import Status
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb.access import Access, after_a_write, key
from rdq_core.stores.dynamodb.concurrency_keys import free_key
from rdq_core.stores.dynamodb.expressions import IS_DEAD, IS_NOT_DEAD, IS_THIS_LIFE, all_of
from rdq_core.stores.dynamodb.references import StoredReference
from rdq_core.stores.dynamodb.schema import ENTRY, STATE, Attr
from rdq_core.stores.dynamodb.sender import ConditionFailed, conditioned
from rdq_core.stores.dynamodb.state_row import RowClaim, StateRow, maybe_row
from rdq_core.stores.dynamodb.values import text

_LONGEST_SUBMIT: Final = timedelta(hours=1)
"""How long the row of a reference may still come: longer than any submit takes, and longer than a
prepared one is valid.
"""
_ROUNDS: Final = 8
"""How often the deletion of a row is tried that dies, or is redriven, at the same time."""


class ForgetVerbs:
    """`forget` of `TaskStore`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def forget(self, reference: Reference, *, now: datetime) -> int:
        """See `TaskStore.forget`."""
        self._access.references.put_tombstone(reference, now)
        return sum(
            self._remove(stored, reference, now)
            for stored in self._access.references.of(reference)
            if is_forgotten(stored.created_at, now)
        )

    def _remove(self, stored: StoredReference, reference: Reference, now: datetime) -> bool:
        item = end_life(self._access, stored.task_id, stored.life)
        row = maybe_row(item)
        # The row of a recent reference may still be on its way: that reference stays for a later
        # forget.
        is_recent = stored.expires and now < stored.created_at + _LONGEST_SUBMIT
        if item is not None or not is_recent:
            digests = row.references if row is not None else (reference.digest,)
            self._access.references.discard(stored.task_id, stored.life, digests)
        return item is not None and (row is None or not row.is_gone(now))


def end_life(access: Access, task_id: str, life: str) -> Mapping[str, Any] | None:
    """Remove a task of any status with its records and bodies; its row as it was, None when there
    was none any more.

    Repeating this removes what an earlier call left behind. A later task under the same id is not
    touched.
    """
    item = _remove_row(access, task_id, life)
    row = maybe_row(item)
    if row is not None:
        free_key(access, row.task, row.fencing_token)
    access.history.discard_life(task_id, life)
    access.bodies.discard_life(task_id, life)
    return item


def unless_forgotten(access: Access, claim: RowClaim) -> RowClaim | None:
    """The claim; None after removing a task that was forgotten while it was submitted. A task
    without references costs no read.
    """
    with after_a_write():
        if not is_row_forgotten(access, claim.row):
            return claim
        end_life(access, claim.task.id, claim.row.life)
        access.references.discard(claim.task.id, claim.row.life, claim.row.references)
    return None


def is_row_forgotten(access: Access, row: StateRow) -> bool:
    """Whether the task of a row was forgotten since it was submitted."""
    return access.references.are_forgotten(row.references, row.task.created_at)


def _remove_row(access: Access, task_id: str, life: str) -> Mapping[str, Any] | None:
    seen, item = None, access.sender.get(access.tables.tasks, key(task_id, STATE))
    for _ in range(_ROUNDS):
        if item is None or item.get(Attr.LIFE) != text(life):
            # A row that has gone since it was read was removed by us, or by another forget.
            return seen
        seen = item
        try:
            _delete_row(access, task_id, life, is_dead=item.get(Attr.STATUS) == text(Status.DEAD))
        except ConditionFailed as refused:
            item = None if refused.row is None else dict(refused.row)
        else:
            return seen
    raise StoreFailed(
        f"task {task_id} changed each time it was about to be forgotten",
        may_have_happened=False,
        task_id=task_id,
        hint="forget again",
    )


def _delete_row(access: Access, task_id: str, life: str, *, is_dead: bool) -> None:
    row, values = key(task_id, STATE), {":life": text(life)}
    if not is_dead:
        access.sender.delete(access.tables.tasks, row, all_of(IS_THIS_LIFE, IS_NOT_DEAD), values)
        return
    delete = conditioned(
        {"TableName": access.tables.tasks, "Key": row}, all_of(IS_THIS_LIFE, IS_DEAD), values
    )
    entry = {"TableName": access.tables.dlq, "Key": key(task_id, ENTRY)}
    access.sender.transact([{"Delete": delete}, {"Delete": entry}], nonce=access.ids.nonce())
