"""What all families of verbs share: the tables, the sender, time and names, and reading and writing
the state row.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Verb, lost
from rdq_core.engine.ports import Clock, IdSource
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb.bodies import Bodies
from rdq_core.stores.dynamodb.history import AttemptHistory
from rdq_core.stores.dynamodb.references import References
from rdq_core.stores.dynamodb.schema import STATE, Attr, Tables
from rdq_core.stores.dynamodb.sender import Sender, update_of
from rdq_core.stores.dynamodb.state_row import RowClaim, StateRow, read_row
from rdq_core.stores.dynamodb.values import Item, Value, text

# Ours have 22 characters, but functions hand tokens back, and may send anything.
_LONGEST_TOKEN: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One store's way to its tables."""

    sender: Sender
    tables: Tables
    clock: Clock
    ids: IdSource
    bodies: Bodies
    history: AttemptHistory
    references: References

    # -- reading the state row ---------------------------------------------------------------------

    def state(self, task_id: str) -> StateRow | None:
        """The state row, read consistently, expired or not. Raises CorruptItem."""
        item = self.sender.get(self.tables.tasks, key(task_id, STATE))
        return None if item is None else read_row(item)

    def unexpired(self, task_id: str, now: datetime) -> StateRow | None:
        """The state row unless its retention has ended."""
        row = self.state(task_id)
        return None if row is None or row.is_gone(now) else row

    def held(self, claim: Claim, verb: Verb) -> StateRow:
        """The row that a claim was made on, without a read for claims of this process.

        Raises LeaseLost when there is no row, or the token cannot be one of ours.
        """
        if not is_token(claim.token):
            raise lost(claim.task.id, verb)
        # That row may be outdated by now: the condition of the write that follows decides.
        row = claim.row if isinstance(claim, RowClaim) else self.state(claim.task.id)
        if row is None:
            raise lost(claim.task.id, verb)
        return row

    # -- writing it --------------------------------------------------------------------------------

    def update_state(
        self,
        task_id: str,
        change: tuple[str, Mapping[str, Value]],
        condition: str,
        values: Mapping[str, Value],
        *,
        returning: bool = True,
    ) -> Item:
        """Change the state row on a condition; the whole row afterwards, or nothing of it when not
        `returning`. Raises ConditionFailed.
        """
        request = update_of(self.tables.tasks, key(task_id, STATE), change, condition, values)
        return self.sender.update(request, returning=returning)

    def state_update(
        self,
        task_id: str,
        change: tuple[str, Mapping[str, Value]],
        condition: str,
        values: Mapping[str, Value],
    ) -> dict[str, object]:
        """The same update as a part of a transaction."""
        return {
            "Update": update_of(self.tables.tasks, key(task_id, STATE), change, condition, values)
        }

    # -- what the row points to --------------------------------------------------------------------

    def extend_for_run(self, row: StateRow, *, due_at: datetime, now: datetime) -> Item:
        """Make the row's body and references live long enough for a run at `due_at`; the new ends,
        which the write of the row has to store.
        """
        # Both before the row is written: it must not be due after what it needs has expired.
        ends: Item = {}
        if row.body_ref is not None:
            ends |= self.bodies.extend_for_run(row, due_at=due_at, now=now)
        if row.references:
            ends |= self.references.extend_for_run(row, due_at=due_at, now=now)
        return ends

    def extend_for_row(
        self, row: StateRow, *, expires_at: datetime | None, now: datetime
    ) -> tuple[Item, tuple[Attr, ...]]:
        """Make them outlive a row that expires at `expires_at` (None: never); the attributes that
        the write of the row has to set, and to remove.
        """
        sets: Item = {}
        removes: tuple[Attr, ...] = ()
        if row.body_ref is not None:
            sets, removes = self.bodies.extend_for_row(row, expires_at=expires_at, now=now)
        if row.references:
            more, less = self.references.extend_for_row(row, expires_at=expires_at, now=now)
            sets, removes = {**sets, **more}, (*removes, *less)
        return sets, removes


def key(task_id: str, kind: str) -> Item:
    """The key of an item of a task, in the tasks table and the dlq table."""
    return {Attr.TASK_ID: text(task_id), Attr.KIND: text(kind)}


def is_token(token: object) -> bool:
    """Whether this can be a claim token at all. If not, it is refused without a request."""
    return isinstance(token, str) and 0 < len(token) <= _LONGEST_TOKEN and token.isascii()


@contextlib.contextmanager
def after_a_write() -> Iterator[None]:
    """Around what follows a write of ours: when that fails, the StoreFailed still has to say that
    the write may have happened.
    """
    try:
        yield
    except StoreFailed as failed:
        failed.may_have_happened = True
        raise
