"""What every family of verbs shares: the tables, the sender, time, names, and the state row's reads
and writes.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rdq_core.domain.envelope import VERSION
from rdq_core.domain.ids import shard_of
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Verb, lost
from rdq_core.domain.task import Status, Task
from rdq_core.engine.ports import Clock, IdSource
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb.bodies import Bodies
from rdq_core.stores.dynamodb.expressions import SLOT_IS_OURS, all_of
from rdq_core.stores.dynamodb.history import History
from rdq_core.stores.dynamodb.items import RowClaim, StateRow, read_row
from rdq_core.stores.dynamodb.references import References
from rdq_core.stores.dynamodb.schema import STATE, Attr, Tables, queue_shard
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import Item, Value, moment, number, seconds_down, text

_FIXED: Final[Mapping[str, Value]] = {
    ":pending": text(Status.PENDING),
    ":in_flight": text(Status.IN_FLIGHT),
    ":dead": text(Status.DEAD),
    ":oldest_version": number(1),
    ":version": number(VERSION),
    ":string": text("S"),
    ":numeric": text("N"),
}
_LONGEST_TOKEN: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One store's way to its tables."""

    sender: Sender
    tables: Tables
    clock: Clock
    ids: IdSource
    bodies: Bodies
    history: History
    references: References

    def state(self, task_id: str) -> StateRow | None:
        """The state row, read consistently, expired or not. Raises CorruptItem."""
        item = self.sender.get(self.tables.tasks, key(task_id, STATE))
        return None if item is None else read_row(item)

    def living(self, task_id: str, now: datetime) -> StateRow | None:
        """The state row unless its retention is over."""
        row = self.state(task_id)
        return None if row is None or row.is_gone(now) else row

    def held(self, claim: Claim, verb: Verb) -> StateRow:
        """The row that a claim was made on. Raises LeaseLost when there is none or the token can't
        be one of ours.
        """
        if not is_token(claim.token):
            raise lost(claim.task.id, verb)
        row = claim.row if isinstance(claim, RowClaim) else self.state(claim.task.id)
        if row is None:
            raise lost(claim.task.id, verb)
        return row

    def update_state(
        self,
        task_id: str,
        change: tuple[str, Mapping[str, Value]],
        condition: str,
        values: Mapping[str, Value],
    ) -> Item:
        """Change the state row on a condition; the whole row afterwards. Raises ConditionFailed."""
        return self.sender.update(self.part(task_id, change, condition, values))

    def settle_state(
        self,
        task_id: str,
        change: tuple[str, Mapping[str, Value]],
        condition: str,
        values: Mapping[str, Value],
    ) -> None:
        """The same where nobody needs the row afterwards."""
        self.sender.change(self.part(task_id, change, condition, values))

    def part(
        self,
        task_id: str,
        change: tuple[str, Mapping[str, Value]],
        condition: str,
        values: Mapping[str, Value],
    ) -> dict[str, object]:
        """The same update as a part of a transaction."""
        return update_of(
            self.tables.tasks, key(task_id, STATE), change, condition, {**_FIXED, **values}
        )

    def keep_for_run(self, row: StateRow, *, due_at: datetime, now: datetime) -> Item:
        """Let all that the row leads to live long enough for a run at `due_at`; what the row must
        then remember.
        """
        return {
            **self.bodies.keep_for_run(row, due_at=due_at, now=now),
            **self.references.keep_for_run(row, due_at=due_at, now=now),
        }

    def keep_for_row(
        self, row: StateRow, *, expires_at: datetime | None, now: datetime
    ) -> tuple[Item, tuple[Attr, ...]]:
        """Let it outlive a row that ends at `expires_at`, None: never; what the row must remember,
        and forget.
        """
        body, body_forgets = self.bodies.keep_for_row(row, expires_at=expires_at, now=now)
        references, references_forget = self.references.keep_for_row(
            row, expires_at=expires_at, now=now
        )
        return {**body, **references}, (*body_forgets, *references_forget)

    def free_slot(self, task: Task, fencing_token: int) -> None:
        """Give a task's concurrency key free after the claim of that fencing token was settled.

        A failure leaves it to the next claimant, who finds that the task isn't in flight any more.
        """
        if task.concurrency_key is None:
            return
        mine = {":slot_task": text(task.id), ":fence": number(fencing_token)}
        with contextlib.suppress(ConditionFailed, StoreFailed):
            self.sender.delete(self.tables.control, slot_key(task), all_of(SLOT_IS_OURS), mine)


def slot_key(task: Task) -> Item:
    """Where the slot of a task's key is. The key itself may be private, so only its digest is in
    the name.
    """
    digest = hashlib.sha256((task.concurrency_key or "").encode()).hexdigest()[:32]
    return {Attr.PK: text(f"slot#{task.queue}#{digest}"), Attr.SK: text("holder")}


def values_at(now: datetime) -> dict[str, Value]:
    """The present moment, as conditions compare it with due times and with ends of retention."""
    return {**_FIXED, ":now": moment(now), ":now_seconds": number(seconds_down(now))}


def key(task_id: str, kind: str) -> Item:
    """The key of an item."""
    return {Attr.TASK_ID: text(task_id), Attr.KIND: text(kind)}


def partition_of(task: Task, shards: int) -> str:
    """The index partition of a task in a queue of so many shards."""
    shard = shard_of(task.id, shards, queue=task.queue, concurrency_key=task.concurrency_key)
    return queue_shard(task.queue, shard)


def is_token(token: object) -> bool:
    """Whether this can be a claim token at all. What can't be one is stale, and needs no request to
    be refused.
    """
    return isinstance(token, str) and 0 < len(token) <= _LONGEST_TOKEN and token.isascii()


@contextlib.contextmanager
def after_a_write() -> Iterator[None]:
    """Around what follows a write of ours. That it fails doesn't mean that nothing was written:
    StoreFailed says so.
    """
    try:
        yield
    except StoreFailed as failed:
        failed.may_have_happened = True
        raise
