"""A task's attempts on record, in the dlq table: each is written once, published by the state row,
and read back along a chain.

    state row ── last_attempt ──► A#3 ── previous ──► A#2 ── previous ──► A#1

The invariant: a record's key belongs to one claim, so that no other writer can have it. The record
becomes history when the state row, or a record that is history, names it.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt, AttemptError, Outcome
from rdq_core.engine.ports import Clock
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb import stacks
from rdq_core.stores.dynamodb.expressions import IS_FRESH, all_of
from rdq_core.stores.dynamodb.schema import ATTEMPT_PREFIX, Attr, Tables
from rdq_core.stores.dynamodb.sender import ConditionFailed, Sender
from rdq_core.stores.dynamodb.state_row import StateRow
from rdq_core.stores.dynamodb.values import (
    Item,
    Reader,
    Value,
    binary,
    compact_json,
    moment,
    number,
    text,
    text_of,
)

_COMPRESS_STACKS_OVER: Final = 512
_OF_TASK: Final = "#task_id = :task_id AND begins_with(#kind, :prefix)"


@dataclass(frozen=True, slots=True)
class Record:
    """A stored attempt: its key, the key of the record before it, and the life of the task that it
    belongs to.
    """

    key: str
    previous: str | None
    life: str
    attempt: Attempt


def record_key(attempt_no: int, claim_id: str) -> str:
    """The key of an attempt's record."""
    return f"{ATTEMPT_PREFIX}{attempt_no}#{claim_id}"


def attempt_no_of(record_key: str) -> int:
    """The attempt number in a record's key, 0 when there is none."""
    digits = record_key.removeprefix(ATTEMPT_PREFIX).partition("#")[0]
    return int(digits) if digits.isdecimal() else 0


def previous_of(item: Mapping[str, Any]) -> str | None:
    """The key of the record before a stored record."""
    return text_of(item, Attr.PREVIOUS)


def next_record(row: StateRow, attempt: Attempt, claim_id: str) -> Record:
    """The record of the next attempt of a row. Its number comes from the row's history, never from
    the budget that has been used.
    """
    return Record(record_key(row.history_length + 1, claim_id), row.last_attempt, row.life, attempt)


def appended(row: StateRow, record: Record) -> Item:
    """The attributes of a row to whose history a record is appended."""
    return {
        Attr.ATTEMPT_COUNT: number(row.task.attempt_count + 1),
        Attr.HISTORY_LENGTH: number(row.history_length + 1),
        Attr.LAST_ATTEMPT: text(record.key),
    }


def submitted_records(attempts: Sequence[Attempt], life: str) -> list[Record]:
    """The records of failures that a task was submitted with. No claim made them, so their keys
    carry the name of the task's life.
    """
    records: list[Record] = []
    for attempt_no, attempt in enumerate(attempts, start=1):
        previous = records[-1].key if records else None
        records.append(Record(record_key(attempt_no, life), previous, life, attempt))
    return records


class AttemptHistory:
    """The attempt records of all tasks."""

    def __init__(self, sender: Sender, tables: Tables, clock: Clock) -> None:
        self._sender = sender
        self._table = tables.dlq
        self._clock = clock

    def put(self, task_id: str, record: Record) -> None:
        """Store a record. It is not history before a row names it. A record under its key is ours,
        and stays.
        """
        item = record_item(task_id, record, now=self._clock.now())
        try:
            self._sender.put(self._table, item, all_of(IS_FRESH), {})
        except ConditionFailed:
            return

    def put_all(self, records: Iterable[tuple[str, Record]]) -> None:
        """Store the records of new tasks in batches, each with its task's id."""
        # Without conditions, which a batch can't have. The life in the keys is new: none exists.
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
                f"the history of task {row.task.id} is incomplete:"
                f" its row counts {row.history_length} attempt records",
                task_id=row.task.id,
                hint="a record was removed by hand; the task itself is left as it is",
            )
        return [record.attempt for record in records]

    def has(self, row: StateRow, key: str) -> bool | None:
        """Whether a row's history holds this record; None when the history is incomplete, which
        leaves the question open.
        """
        records = self._records(row)
        return None if records is None else any(record.key == key for record in records)

    def keys(self, row: StateRow, known: Mapping[str, str | None]) -> frozenset[str] | None:
        """The keys of the history that a row publishes; None when it is incomplete.

        `known` are keys of records that were read before, each with the key before it. Records
        never change, so if those are enough there is nothing to read.
        """
        keys = _walk(known, row.last_attempt)
        if keys is None:
            items = self._items(row.task.id, ProjectionExpression="#kind, #previous")
            links = {item[Attr.KIND]["S"]: previous_of(item) for item in items}
            keys = _walk(links, row.last_attempt)
        return keys

    def discard(self, task_id: str, keys: Iterable[str]) -> None:
        """Delete records that are not, and never become, history."""
        self._sender.delete_all(
            self._table, [{Attr.TASK_ID: text(task_id), Attr.KIND: text(key)} for key in keys]
        )

    def discard_life(self, task_id: str, life: str) -> None:
        """Delete every record of a life that has ended."""
        items = self._items(task_id, ProjectionExpression="#task_id, #kind, #life")
        self.discard(
            task_id, [item[Attr.KIND]["S"] for item in items if item.get(Attr.LIFE) == text(life)]
        )

    def _records(self, row: StateRow) -> list[Record] | None:
        if row.last_attempt is None:
            return []
        # Orphans and records of earlier lives are read too: only the links from the row decide what
        # belongs to its history.
        stored = {str(item[Attr.KIND]["S"]): item for item in self._items(row.task.id)}
        records: list[Record] = []
        key: str | None = row.last_attempt
        while key is not None:
            item = stored.pop(key, None)
            if item is None:
                return None
            # It was taken out of `stored`, so that a chain edited into a circle ends as incomplete.
            records.append(read_record(item))
            key = records[-1].previous
        return records[::-1]

    def _items(self, task_id: str, **options: str) -> Sequence[Mapping[str, Any]]:
        values: dict[str, Value] = {":task_id": text(task_id), ":prefix": text(ATTEMPT_PREFIX)}
        request = {
            "TableName": self._table,
            "KeyConditionExpression": _OF_TASK,
            "ConsistentRead": True,
            **options,
        }
        return list(self._sender.query_all(request, values))


def _walk(links: Mapping[str, str | None], last: str | None) -> frozenset[str] | None:
    keys: set[str] = set()
    while last is not None:
        # A chain that was edited by hand into a circle is as incomplete as a broken one.
        if last not in links or last in keys:
            return None
        keys.add(last)
        last = links[last]
    return frozenset(keys)


# -- a record as an item ---------------------------------------------------------------------------


def record_item(task_id: str, record: Record, *, now: datetime) -> Item:
    """An attempt as an item."""
    attempt = record.attempt
    fence = attempt.fencing_token
    values: dict[Attr, Value | None] = {
        Attr.TASK_ID: text(task_id),
        Attr.KIND: text(record.key),
        Attr.LIFE: text(record.life),
        Attr.PUT_AT: moment(now),
        Attr.PREVIOUS: _maybe_text(record.previous),
        Attr.STARTED_AT: moment(attempt.started_at),
        Attr.FINISHED_AT: None if attempt.finished_at is None else moment(attempt.finished_at),
        Attr.OUTCOME: text(attempt.outcome),
        Attr.WORKER: _maybe_text(attempt.worker),
        Attr.FENCING_TOKEN: None if fence is None else number(fence),
        Attr.UNKNOWN: _maybe_json(attempt.unknown or None),
    }
    return _present(values) | ({} if attempt.error is None else _error_item(attempt.error))


def _error_item(error: AttemptError) -> Item:
    values: dict[Attr, Value | None] = {
        Attr.ERROR_TYPE: text(error.type),
        Attr.ERROR_MESSAGE: _maybe_text(error.message),
        Attr.ERROR_CODE: text(error.code),
        Attr.ERROR_DETAIL: _maybe_json(error.detail),
        Attr.ERROR_UNKNOWN: _maybe_json(error.unknown or None),
    }
    return _present(values) | _stack_item(error.stack)


def _stack_item(stack: str | None) -> Item:
    if stack is None:
        return {}
    encoded = stack.encode()
    if len(encoded) <= _COMPRESS_STACKS_OVER:
        return {Attr.ERROR_STACK: binary(encoded)}
    return {
        Attr.ERROR_STACK: binary(stacks.compressed(encoded)),
        Attr.ENCODING: text(stacks.ENCODING),
    }


def read_record(item: Mapping[str, Any]) -> Record:
    """An attempt from its item. Raises CorruptItem."""
    key = text_of(item, Attr.KIND) or "?"
    task_id = text_of(item, Attr.TASK_ID) or "?"
    reader = Reader(item, f"attempt record {key} of task {task_id}", task_id)
    attempt = Attempt(
        attempt_no=attempt_no_of(key),
        started_at=reader.moment(Attr.STARTED_AT),
        finished_at=reader.maybe_moment(Attr.FINISHED_AT),
        outcome=reader.choice(Attr.OUTCOME, Outcome),
        error=_error(reader),
        worker=reader.maybe_text(Attr.WORKER),
        fencing_token=reader.maybe_number(Attr.FENCING_TOKEN),
        unknown=reader.maybe_json(Attr.UNKNOWN) or {},
    )
    return Record(key, reader.maybe_text(Attr.PREVIOUS), reader.text(Attr.LIFE), attempt)


def _error(reader: Reader) -> AttemptError | None:
    kind = reader.maybe_text(Attr.ERROR_TYPE)
    if kind is None:
        return None
    stack = _stack(reader)
    return AttemptError(
        type=kind,
        message=reader.maybe_text(Attr.ERROR_MESSAGE),
        code=reader.text(Attr.ERROR_CODE),
        detail=reader.maybe_json(Attr.ERROR_DETAIL),
        stack=None if stack is None else stack.decode("utf-8", "replace"),
        unknown=reader.maybe_json(Attr.ERROR_UNKNOWN) or {},
    )


def _stack(reader: Reader) -> bytes | None:
    content, encoding = reader.maybe_bytes(Attr.ERROR_STACK), reader.maybe_text(Attr.ENCODING)
    if content is None or encoding is None:
        return content
    try:
        if encoding == stacks.ENCODING:
            return stacks.decompressed(content)
    except zlib.error:
        pass
    raise reader.corrupt(f"{Attr.ERROR_STACK} cannot be decompressed")


def _present(values: Mapping[Attr, Value | None]) -> Item:
    # An absent attribute and no NULL: DynamoDB bills NULL, and readers would meet two forms.
    return {attr: value for attr, value in values.items() if value is not None}


def _maybe_text(value: str | None) -> Value | None:
    return None if value is None else text(value)


def _maybe_json(data: Any) -> Value | None:
    return None if data is None else binary(compact_json(data))
