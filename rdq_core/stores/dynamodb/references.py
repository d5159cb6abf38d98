"""References in the control table: one item per task under the digest of its target or requester,
and the tombstones of forgotten ones.

The invariant: a reference is put before the row that it leads to, and lives as long as that row, by
the rule for bodies. Its key has the task's life, so that it is never taken for a reference to a
later task under the same id.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rdq_core.domain.references import TOMBSTONE_LIFE, Reference, is_forgotten
from rdq_core.domain.task import Task
from rdq_core.stores.dynamodb.bodies import AFTER_DUE, AFTER_ROW, LIFE, first_end
from rdq_core.stores.dynamodb.expressions import (
    BODY_ENDS_SOONER,
    HAS_AN_END,
    IS_FORGOTTEN_NO_LATER,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.schema import REFERENCE_PREFIX, TOMBSTONE, Attr, Tables
from rdq_core.stores.dynamodb.sender import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.state_row import StateRow
from rdq_core.stores.dynamodb.values import (
    Item,
    Reader,
    Value,
    moment,
    number,
    seconds_up,
    text,
    with_end,
)

# Keys of references begin with a ULID, in digits and capitals, which sort before "tombstone".
_OF_ONE: Final = f"{Attr.PK.alias} = :pk AND {Attr.SK.alias} < :tombstone"


@dataclass(frozen=True, slots=True)
class StoredReference:
    """A reference as it is stored: the task's id, its life, and when it was submitted. `expires`
    says whether TTL removes the reference.
    """

    task_id: str
    life: str
    created_at: datetime
    expires: bool


class References:
    """The references of all tasks, and the tombstones."""

    def __init__(self, sender: Sender, tables: Tables) -> None:
        self._sender = sender
        self._table = tables.control

    # -- with their tasks --------------------------------------------------------------------------

    def put(self, items: Sequence[Item]) -> None:
        """Store references, under keys that only their submit knows. Repeating this changes
        nothing.
        """
        self._sender.put_all(self._table, items)

    def discard(self, task_id: str, life: str, digests: Iterable[str]) -> None:
        """Delete the references to a life that has ended, or that never began."""
        self._sender.delete_all(self._table, [_key(digest, task_id, life) for digest in digests])

    def extend_for_run(self, row: StateRow, *, due_at: datetime, now: datetime) -> Item:
        """Make the references live long enough for a run at `due_at`; their new end, which the
        write of the row has to store.
        """
        if row.references_end_at is None or row.references_end_at >= due_at + AFTER_DUE:
            return {}
        return self._renew(row, first_end(due_at=due_at, now=now))

    def extend_for_row(
        self, row: StateRow, *, expires_at: datetime | None, now: datetime
    ) -> tuple[Item, tuple[Attr, ...]]:
        """Make them outlive a row that expires at `expires_at` (None: never); the attributes that
        the write of the row has to set, and to remove.
        """
        if row.references_end_at is None:
            return {}, ()
        if expires_at is None:
            self._change_ends(row, change({}, (Attr.EXPIRES_AT,)), all_of(HAS_AN_END), {})
            return {}, (Attr.REFERENCES_END_AT,)
        if row.references_end_at >= expires_at + AFTER_ROW:
            return {}, ()
        return self._renew(row, max(now + LIFE, expires_at + AFTER_ROW)), ()

    def _renew(self, row: StateRow, ends_at: datetime) -> Item:
        end = number(seconds_up(ends_at))
        self._change_ends(
            row, change({Attr.EXPIRES_AT: end}), all_of(BODY_ENDS_SOONER), {":body_ends_at": end}
        )
        return {Attr.REFERENCES_END_AT: end}

    def _change_ends(
        self,
        row: StateRow,
        end: tuple[str, dict[str, Value]],
        condition: str,
        values: dict[str, Value],
    ) -> None:
        # A target and a requester: two updates at most.
        for digest in row.references:
            key = _key(digest, row.task.id, row.life)
            try:
                self._sender.update(
                    update_of(self._table, key, end, condition, values), returning=False
                )
            except ConditionFailed:
                # It lives longer already, or is missing because its task was forgotten.
                continue

    # -- forgetting --------------------------------------------------------------------------------

    def put_tombstone(self, reference: Reference, now: datetime) -> None:
        """Record that a target or requester was forgotten. A tombstone with a later time stays."""
        item = {**tombstone_key(reference.digest), Attr.FORGOTTEN_AT: moment(now)}
        item[Attr.EXPIRES_AT] = number(seconds_up(now + TOMBSTONE_LIFE))
        try:
            self._sender.put(
                self._table, item, all_of(IS_FORGOTTEN_NO_LATER), {":forgotten_at": moment(now)}
            )
        except ConditionFailed:
            return

    def are_forgotten(self, digests: Iterable[str], created_at: datetime) -> bool:
        """Whether one of them was forgotten since a task was submitted; one consistent read
        each.
        """
        return any(is_forgotten(created_at, self._forgotten_at(digest)) for digest in digests)

    def _forgotten_at(self, digest: str) -> datetime | None:
        item = self._sender.get(self._table, tombstone_key(digest))
        return None if item is None else Reader(item, "a tombstone").moment(Attr.FORGOTTEN_AT)

    def of(self, reference: Reference) -> Iterator[StoredReference]:
        """The references to every task of a target or requester, read consistently."""
        request = {
            "TableName": self._table,
            "KeyConditionExpression": _OF_ONE,
            "ConsistentRead": True,
        }
        values = {":pk": text(REFERENCE_PREFIX + reference.digest), ":tombstone": text(TOMBSTONE)}
        return map(_read, self._sender.query_all(request, values))


def in_row(digests: Sequence[str], ends_at: datetime) -> Item:
    """The digests and the references' first end, as attributes of the row."""
    return {
        Attr.REFERENCES: text(" ".join(digests)),
        Attr.REFERENCES_END_AT: number(seconds_up(ends_at)),
    }


def reference_items(task: Task, digests: Sequence[str], life: str, ends_at: datetime) -> list[Item]:
    """The references to a new task."""
    reference: Item = {
        Attr.TASK_ID: text(task.id),
        Attr.LIFE: text(life),
        Attr.CREATED_AT: moment(task.created_at),
    }
    return [with_end({**_key(digest, task.id, life), **reference}, ends_at) for digest in digests]


def tombstone_key(digest: str) -> Item:
    """The key of the tombstone of a target or requester."""
    return {Attr.PK: text(REFERENCE_PREFIX + digest), Attr.SK: text(TOMBSTONE)}


def _key(digest: str, task_id: str, life: str) -> Item:
    return {Attr.PK: text(REFERENCE_PREFIX + digest), Attr.SK: text(f"{task_id}#{life}")}


def _read(item: Item) -> StoredReference:
    reader = Reader(item, "a reference")
    return StoredReference(
        task_id=reader.text(Attr.TASK_ID),
        life=reader.text(Attr.LIFE),
        created_at=reader.moment(Attr.CREATED_AT),
        expires=Attr.EXPIRES_AT in item,
    )
