"""Attempt records and dead-letter entries, to and from items of the dlq table.

The invariant: an attempt's record is written once, under a key that no other writer can have, and
carries the key of the record before it. It is history when the state row, or a later record that
is, names it.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt, AttemptError, Outcome
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.text import truncate
from rdq_core.stores.dynamodb import stacks
from rdq_core.stores.dynamodb.schema import ATTEMPT_PREFIX, ENTRY, Attr, queue_of
from rdq_core.stores.dynamodb.values import (
    Item,
    Reader,
    Value,
    binary,
    compact_json,
    item_size,
    moment,
    number,
    seconds_up,
    text,
)

_COMPRESS_STACKS_OVER: Final = 512
_ENTRY_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Record:
    """A stored attempt: its own key, the key of the one before it, and the task's life that it
    belongs to.
    """

    key: str
    previous: str | None
    life: str
    attempt: Attempt


def record_key(attempt_no: int, claim_id: str) -> str:
    """The key of an attempt's record: nobody but the claim's holder can have it."""
    return f"{ATTEMPT_PREFIX}{attempt_no}#{claim_id}"


def number_of(key: str) -> int:
    """The attempt's number in a record's key, 0 where there is none."""
    digits = key.removeprefix(ATTEMPT_PREFIX).partition("#")[0]
    return int(digits) if digits.isdecimal() else 0


def record_item(task_id: str, record: Record, *, now: datetime) -> Item:
    """An attempt as an item."""
    attempt = record.attempt
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
        Attr.FENCING_TOKEN: None
        if attempt.fencing_token is None
        else number(attempt.fencing_token),
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
    return {Attr.ERROR_STACK: binary(stacks.squeezed(encoded)), Attr.ENCODING: text(stacks.PHRASES)}


def read_record(item: Mapping[str, Any]) -> Record:
    """An attempt out of its item. Raises CorruptItem."""
    key = str(item.get(Attr.KIND, {}).get("S", "?"))
    task_id = str(item.get(Attr.TASK_ID, {}).get("S", "?"))
    reader = Reader(item, f"attempt record {key} of task {task_id}", task_id)
    attempt = Attempt(
        attempt_no=number_of(key),
        started_at=reader.moment(Attr.STARTED_AT),
        finished_at=reader.maybe_moment(Attr.FINISHED_AT),
        outcome=_outcome(reader),
        error=_error(reader),
        worker=reader.maybe_text(Attr.WORKER),
        fencing_token=reader.maybe_number(Attr.FENCING_TOKEN),
        unknown=reader.maybe_json(Attr.UNKNOWN) or {},
    )
    return Record(key, reader.maybe_text(Attr.PREVIOUS), reader.text(Attr.LIFE), attempt)


def chain(items: Iterable[Mapping[str, Any]], last: str | None) -> list[Record] | None:
    """The published history out of all records of a task, oldest first; None when a record of it is
    missing.
    """
    stored = {str(item[Attr.KIND]["S"]): item for item in items}
    found: list[Record] = []
    while last is not None:
        item = stored.pop(last, None)
        if item is None:
            return None
        found.append(read_record(item))
        last = found[-1].previous
    return found[::-1]


def entry_item(entry: DeadEntry, *, life: str, partition: str, expires_at: datetime | None) -> Item:
    """A dead-letter entry as an item; its message, then its type, cut so that it stays within one
    write unit.
    """
    values: dict[Attr, Value | None] = {
        Attr.TASK_ID: text(entry.task_id),
        Attr.KIND: text(ENTRY),
        Attr.LIFE: text(life),
        Attr.QUEUE_SHARD: text(partition),
        Attr.DEAD_AT: moment(entry.dead_at),
        Attr.EXPIRES_AT: None if expires_at is None else number(seconds_up(expires_at)),
        Attr.HANDLER_REF: text(entry.handler_ref),
        Attr.HANDLER_VERSION: _maybe_text(entry.handler_version),
        Attr.CREATED_AT: moment(entry.created_at),
        Attr.ERROR_CODE: text(entry.code),
        Attr.FINGERPRINT: text(entry.fingerprint),
        Attr.ATTEMPT_COUNT: number(entry.attempts),
        Attr.REDRIVE_COUNT: number(entry.redrive_count),
        Attr.PAYLOAD_SIZE: number(entry.payload_size),
    }
    item = _present(values)
    for attr, content in ((Attr.ERROR_TYPE, entry.type), (Attr.ERROR_MESSAGE, entry.message)):
        item |= _fitting(attr, content, _ENTRY_BYTES - item_size(item))
    return item


def _fitting(attr: Attr, content: str | None, room: int) -> Item:
    limit = room - len(attr)
    if content is None or (len(content.encode()) > limit and limit < _SHORTEST_TEXT):
        return {}
    return {attr: text(content if len(content.encode()) <= limit else truncate(content, limit))}


_SHORTEST_TEXT: Final = 32


def read_entry(item: Mapping[str, Any]) -> DeadEntry:
    """A dead-letter entry out of its item. Raises CorruptItem."""
    task_id = str(item.get(Attr.TASK_ID, {}).get("S", "?"))
    reader = Reader(item, f"the dead-letter entry of task {task_id}", task_id)
    return DeadEntry(
        task_id=reader.text(Attr.TASK_ID),
        queue=queue_of(reader.text(Attr.QUEUE_SHARD)),
        handler_ref=reader.text(Attr.HANDLER_REF),
        handler_version=reader.maybe_text(Attr.HANDLER_VERSION),
        dead_at=reader.moment(Attr.DEAD_AT),
        created_at=reader.moment(Attr.CREATED_AT),
        code=reader.text(Attr.ERROR_CODE),
        type=reader.maybe_text(Attr.ERROR_TYPE),
        message=reader.maybe_text(Attr.ERROR_MESSAGE),
        fingerprint=reader.text(Attr.FINGERPRINT),
        attempts=reader.number(Attr.ATTEMPT_COUNT),
        redrive_count=reader.number(Attr.REDRIVE_COUNT),
        payload_size=reader.number(Attr.PAYLOAD_SIZE),
    )


def _outcome(reader: Reader) -> Outcome:
    try:
        return Outcome(reader.text(Attr.OUTCOME))
    except ValueError:
        raise reader.corrupt("its outcome is none that this rdq knows") from None


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
        if encoding == stacks.PHRASES:
            return stacks.restored(content)
    except zlib.error:
        pass
    raise reader.corrupt(f"{Attr.ERROR_STACK} cannot be decompressed")


def _present(values: Mapping[Attr, Value | None]) -> Item:
    return {attr: value for attr, value in values.items() if value is not None}


def _maybe_text(value: str | None) -> Value | None:
    return None if value is None else text(value)


def _maybe_json(data: Any) -> Value | None:
    return None if data is None else binary(compact_json(data))
