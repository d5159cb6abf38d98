"""References in the control table: one item a task under the digest of its target or requester, and
the tombstone.

A reference is put before the row that it leads to and lives as long as that row, by the rule that
bodies obey. Its key has the task's life, so that it can't be taken for one of a later task under
the same id.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rdq_core.domain.references import TOMBSTONE_LIFE, Reference, is_forgotten, references_of
from rdq_core.domain.task import Task
from rdq_core.stores.dynamodb.bodies import AFTER_DUE, AFTER_ROW, LIFE
from rdq_core.stores.dynamodb.contents import with_end
from rdq_core.stores.dynamodb.expressions import (
    BODY_ENDS_SOONER,
    HAS_AN_END,
    IS_FORGOTTEN_NO_LATER,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.items import StateRow
from rdq_core.stores.dynamodb.schema import REFERENCE_PREFIX, TOMBSTONE, Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import Item, Reader, Value, moment, number, seconds_up, text

_OF_ONE: Final = f"{Attr.PK.alias} = :pk AND {Attr.SK.alias} < :tombstone"


@dataclass(frozen=True, slots=True)
class Mention:
    """A reference as it is stored: the task's id, life and time of submit. With `ends` it goes by
    itself.
    """

    task_id: str
    life: str
    created_at: datetime
    ends: bool


class References:
    """The references of all tasks, and what was forgotten."""

    def __init__(self, sender: Sender, tables: Tables) -> None:
        self._sender = sender
        self._table = tables.control

    # -- with their tasks --------------------------------------------------------------------------

    def put(self, items: Sequence[Item]) -> None:
        """Store references, under keys that only their submit knows. Doing so again changes
        nothing.
        """
        self._sender.put_all(self._table, items)

    def discard(self, task_id: str, life: str, digests: Iterable[str]) -> None:
        """Delete what leads to a life that has ended, or that never began."""
        self._sender.delete_all(self._table, [_key(digest, task_id, life) for digest in digests])

    def keep_for_run(self, row: StateRow, *, due_at: datetime, now: datetime) -> Item:
        """Let the references live long enough for a run at `due_at`; what the row must then
        remember of their end.
        """
        if row.references_end_at is None or row.references_end_at >= due_at + AFTER_DUE:
            return {}
        return self._renew(row, max(now, due_at) + LIFE)

    def keep_for_row(
        self, row: StateRow, *, expires_at: datetime | None, now: datetime
    ) -> tuple[Item, tuple[Attr, ...]]:
        """Let them outlive a row that ends at `expires_at`, None: never; what the row must
        remember, and forget.
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
        for digest in row.references:
            key = _key(digest, row.task.id, row.life)
            try:
                self._sender.update(update_of(self._table, key, end, condition, values))
            except ConditionFailed:
                # It lives longer already, or is gone: then its task was forgotten.
                continue

    # -- forgetting --------------------------------------------------------------------------------

    def bury(self, reference: Reference, now: datetime) -> None:
        """Set up the tombstone. One that says a later moment stands."""
        item = {**tombstone_key(reference.digest), Attr.FORGOTTEN_AT: moment(now)}
        item[Attr.EXPIRES_AT] = number(seconds_up(now + TOMBSTONE_LIFE))
        try:
            self._sender.put(
                self._table, item, all_of(IS_FORGOTTEN_NO_LATER), {":forgotten_at": moment(now)}
            )
        except ConditionFailed:
            return

    def are_forgotten(self, digests: Iterable[str], created_at: datetime) -> bool:
        """Whether one of them was forgotten since a task was submitted, read consistently."""
        return any(is_forgotten(created_at, self._forgotten_at(digest)) for digest in digests)

    def _forgotten_at(self, digest: str) -> datetime | None:
        item = self._sender.get(self._table, tombstone_key(digest))
        return None if item is None else Reader(item, "a tombstone").moment(Attr.FORGOTTEN_AT)

    def of(self, reference: Reference) -> Iterator[Mention]:
        """Every task that has this reference, read consistently."""
        request = {
            "TableName": self._table,
            "KeyConditionExpression": _OF_ONE,
            "ConsistentRead": True,
        }
        values = {":pk": text(REFERENCE_PREFIX + reference.digest), ":tombstone": text(TOMBSTONE)}
        return map(_mention, self._sender.query_all(request, values))


def digests_of(task: Task) -> tuple[str, ...]:
    """What a row has of its task's references."""
    return tuple(reference.digest for reference in references_of(task))


def in_row(digests: Sequence[str], ends_at: datetime) -> Item:
    """The same as attributes of the row, with the end that they are first given."""
    if not digests:
        return {}
    return {
        Attr.REFERENCES: text(" ".join(digests)),
        Attr.REFERENCES_END_AT: number(seconds_up(ends_at)),
    }


def reference_items(task: Task, life: str, ends_at: datetime) -> list[Item]:
    """The references of a new task."""
    return [
        with_end(
            {
                **_key(digest, task.id, life),
                Attr.TASK_ID: text(task.id),
                Attr.LIFE: text(life),
                Attr.CREATED_AT: moment(task.created_at),
            },
            ends_at,
        )
        for digest in digests_of(task)
    ]


def tombstone_key(digest: str) -> Item:
    """Where it is written when a target or requester was forgotten."""
    return {Attr.PK: text(REFERENCE_PREFIX + digest), Attr.SK: text(TOMBSTONE)}


def _key(digest: str, task_id: str, life: str) -> Item:
    return {Attr.PK: text(REFERENCE_PREFIX + digest), Attr.SK: text(f"{task_id}#{life}")}


def _mention(item: Item) -> Mention:
    reader = Reader(item, "a reference")
    return Mention(
        task_id=reader.text(Attr.TASK_ID),
        life=reader.text(Attr.LIFE),
        created_at=reader.moment(Attr.CREATED_AT),
        ends=Attr.EXPIRES_AT in item,
    )
