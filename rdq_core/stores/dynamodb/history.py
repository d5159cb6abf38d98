"""A task's attempts on record: written once, published by the state row, read back along the chain."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rdq_core.domain.attempt import Attempt
from rdq_core.engine.ports import Clock
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.expressions import IS_FRESH, all_of
from rdq_core.stores.dynamodb.items import StateRow
from rdq_core.stores.dynamodb.records import Record, chain, record_item, record_key
from rdq_core.stores.dynamodb.schema import ATTEMPT_PREFIX, Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender
from rdq_core.stores.dynamodb.values import Value, text

_OF_TASK: Final = "#task_id = :task_id AND begins_with(#kind, :prefix)"


class History:
    """Attempt records in the dlq table."""

    def __init__(self, sender: Sender, tables: Tables, clock: Clock) -> None:
        self._sender = sender
        self._table = tables.dlq
        self._clock = clock

    def put(self, task_id: str, record: Record) -> None:
        """Store a record, which nobody sees before the state row names it. One that is there is
        ours, and stands.
        """
        try:
            self._sender.put(
                self._table,
                record_item(task_id, record, now=self._clock.now()),
                all_of(IS_FRESH),
                {},
            )
        except ConditionFailed:
            return

    def put_all(self, records: Iterable[tuple[str, Record]]) -> None:
        """The same for the records of new lives, each with its task's id, in batches."""
        now = self._clock.now()
        self._sender.put_all(
            self._table, [record_item(task_id, record, now=now) for task_id, record in records]
        )

    def published(self, row: StateRow) -> list[Attempt]:
        """The history that a row publishes, oldest first. Raises CorruptItem when a record of it is
        missing.
        """
        records = self._records(row)
        if records is None or len(records) != row.history_length:
            raise CorruptItem(
                f"the history of task {row.task.id} is not whole: its row names {row.history_length} attempt records",
                task_id=row.task.id,
                hint="a record was removed by hand; the task itself is left as it is",
            )
        return [record.attempt for record in records]

    def has(self, row: StateRow, record_key: str) -> bool | None:
        """Whether a row's history holds this record; None when the history is not whole, so that
        nobody can tell.
        """
        records = self._records(row)
        return None if records is None else any(record.key == record_key for record in records)

    def keys(self, row: StateRow, known: Mapping[str, str | None]) -> frozenset[str] | None:
        """The keys of the history that a row publishes; None when it is not whole.

        `known` are records that were read before, and the one before each: records never change, so
        that is enough.
        """
        found = _walked(known, row.last_attempt)
        if found is None:
            links = self._items(row.task.id, ProjectionExpression="#kind, #previous")
            found = _walked(
                {item[Attr.KIND]["S"]: previous_of(item) for item in links}, row.last_attempt
            )
        return found

    def discard(self, task_id: str, keys: Iterable[str]) -> None:
        """Delete records that are proved to be nobody's history."""
        self._sender.delete_all(
            self._table, [{Attr.TASK_ID: text(task_id), Attr.KIND: text(key)} for key in keys]
        )

    def discard_life(self, task_id: str, life: str) -> None:
        """Delete every record of a life that has ended, published or not."""
        items = self._items(task_id, ProjectionExpression="#task_id, #kind, #life")
        self.discard(
            task_id, [item[Attr.KIND]["S"] for item in items if item.get(Attr.LIFE) == text(life)]
        )

    def _records(self, row: StateRow) -> list[Record] | None:
        if row.last_attempt is None:
            return []
        return chain(self._items(row.task.id), row.last_attempt)

    def _items(self, task_id: str, **only: str) -> Sequence[Mapping[str, Any]]:
        values: dict[str, Value] = {":task_id": text(task_id), ":prefix": text(ATTEMPT_PREFIX)}
        request = {
            "TableName": self._table,
            "KeyConditionExpression": _OF_TASK,
            "ConsistentRead": True,
            **only,
        }
        return list(self._sender.query_all(request, values))


def previous_of(item: Mapping[str, Any]) -> str | None:
    """The key of the record before a record."""
    key: str | None = item.get(Attr.PREVIOUS, {}).get("S")
    return key


def _walked(links: Mapping[str, str | None], last: str | None) -> frozenset[str] | None:
    found: set[str] = set()
    while last is not None:
        if last not in links or last in found:
            return None
        found.add(last)
        last = links[last]
    return frozenset(found)


def given_records(attempts: Sequence[Attempt], life: str) -> list[Record]:
    """Records of the failures that a task was submitted with: under its life's name, since no claim
    made them.
    """
    records: list[Record] = []
    for place, attempt in enumerate(attempts, start=1):
        previous = records[-1].key if records else None
        records.append(Record(record_key(place, life), previous, life, attempt))
    return records
