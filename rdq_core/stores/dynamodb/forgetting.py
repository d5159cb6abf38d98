"""Forgetting: every task of a target or requester, with all that it has, and whoever was just being
submitted.

    forget   tombstone ─ every reference ─ each task: row (with its entry), records, bodies, references

The row goes first, so a holder finds its lease lost; what is left behind by a crash is found again
by the reference, which goes last. A row whose submit was cut short before it could read the
tombstone goes at its first claim.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.references import Reference, is_forgotten
from rdq_core.domain.task import Status
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb.access import Access, after_a_write, key
from rdq_core.stores.dynamodb.expressions import IS_DEAD, IS_NOT_DEAD, IS_THIS_LIFE, all_of
from rdq_core.stores.dynamodb.items import RowClaim, StateRow, maybe_row
from rdq_core.stores.dynamodb.references import Mention
from rdq_core.stores.dynamodb.schema import ENTRY, STATE, Attr
from rdq_core.stores.dynamodb.transact import ConditionFailed, conditioned
from rdq_core.stores.dynamodb.values import text

_UNDER_WAY: Final = timedelta(hours=1)
"""How long the row of a reference may take to come: longer than any submit, and than a prepared one
is good for.
"""
_TRIES: Final = 8
"""How often a row is deleted that dies or is sent back while it is deleted."""


class Forgetting:
    """The verb of whoever must not be known any more."""

    _access: Access

    def forget(self, reference: Reference, *, now: datetime) -> int:
        """See `TaskStore.forget`."""
        self._access.references.bury(reference, now)
        mentions = self._access.references.of(reference)
        return sum(
            self._end(mention, reference, now)
            for mention in mentions
            if is_forgotten(mention.created_at, now)
        )

    def _end(self, mention: Mention, reference: Reference, now: datetime) -> bool:
        item = end_life(self._access, mention.task_id, mention.life)
        row = maybe_row(item)
        # A young one that leads to no row may have its row yet to come: it stays, for a forget that
        # comes later.
        if item is not None or not (mention.ends and now < mention.created_at + _UNDER_WAY):
            digests = row.references if row is not None else (reference.digest,)
            self._access.references.discard(mention.task_id, mention.life, digests)
        return item is not None and (row is None or not row.is_gone(now))


def end_life(access: Access, task_id: str, life: str) -> Mapping[str, Any] | None:
    """Remove a task in any status, with its records and bodies; its row as it was, None when there
    was none any more.

    Safe to repeat: what an earlier try has left behind is removed. A later task under the same id
    is not touched.
    """
    item = _removed_row(access, task_id, life)
    row = maybe_row(item)
    if row is not None:
        access.free_slot(row.task, row.fencing_token)
    access.history.discard_life(task_id, life)
    access.bodies.discard_life(task_id, life)
    return item


def unless_forgotten(access: Access, claim: RowClaim | None) -> RowClaim | None:
    """The claim, unless its task was forgotten while it was submitted: then it is removed, and
    there is nothing to run.

    A task without references costs no read.
    """
    with after_a_write():
        if claim is None or not is_row_forgotten(access, claim.row):
            return claim
        end_life(access, claim.task.id, claim.row.life)
        access.references.discard(claim.task.id, claim.row.life, claim.row.references)
    return None


def is_row_forgotten(access: Access, row: StateRow) -> bool:
    """Whether the task of a row was forgotten since it was submitted."""
    return access.references.are_forgotten(row.references, row.task.created_at)


def _removed_row(access: Access, task_id: str, life: str) -> Mapping[str, Any] | None:
    seen, item = None, access.sender.get(access.tables.tasks, key(task_id, STATE))
    for _ in range(_TRIES):
        if item is None or item.get(Attr.LIFE) != text(life):
            # Gone since we looked means by us, or by another forget.
            return seen
        seen = item
        try:
            _delete(access, task_id, life, is_dead=item.get(Attr.STATUS) == text(Status.DEAD))
        except ConditionFailed as refused:
            item = None if refused.row is None else dict(refused.row)
        else:
            return seen
    raise StoreFailed(
        f"task {task_id} changed each time it was to be forgotten",
        may_have_happened=False,
        task_id=task_id,
        hint="forget again",
    )


def _delete(access: Access, task_id: str, life: str, *, is_dead: bool) -> None:
    row, values = key(task_id, STATE), {":life": text(life), ":dead": text(Status.DEAD)}
    if not is_dead:
        access.sender.delete(access.tables.tasks, row, all_of(IS_THIS_LIFE, IS_NOT_DEAD), values)
        return
    delete = conditioned(
        {"TableName": access.tables.tasks, "Key": row}, all_of(IS_THIS_LIFE, IS_DEAD), values
    )
    entry = {"TableName": access.tables.dlq, "Key": key(task_id, ENTRY)}
    access.sender.transact([{"Delete": delete}, {"Delete": entry}], nonce=access.ids.nonce())
