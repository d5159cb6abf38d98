"""Bodies and results outside the state row: put before the row names them, kept as long as their
task.

The invariant: a live task always finds its body. Before a write that sets a due time, the body's
end is at least 30 days after that time; before one that sets the row's end, at least seven days
after that. An orphaned body expires by TTL. Content over 256 KiB goes to S3 (claim_check.py);
without a bucket it is refused before anything is written.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.limits import KIB
from rdq_core.domain.task import Task
from rdq_core.engine.ports import Clock
from rdq_core.errors import CorruptItem, InputInvalid, Unavailable
from rdq_core.stores.dynamodb.claim_check import IN_S3, ClaimCheck, object_key
from rdq_core.stores.dynamodb.expressions import (
    BODY_ENDS_SOONER,
    BODY_IS_THERE,
    CLAUSES,
    IS_FRESH,
    IS_THIS_LIFE,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.schema import BODY_PREFIX, RESULT_PREFIX, Attr, Tables
from rdq_core.stores.dynamodb.sender import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.state_row import StateRow, fields_of, meta_of, read_inline, reader_of
from rdq_core.stores.dynamodb.values import (
    Item,
    Reader,
    Value,
    binary,
    compact_json,
    number,
    seconds_up,
    text,
    with_end,
)

# Well below the 400 KB of an item ("Quotas in Amazon DynamoDB"): meta data needs room too.
MAX_STORED_BYTES: Final = 256 * KIB
# LIFE is twice AFTER_DUE, so that one renewal lasts for a month of retries.
LIFE: Final = timedelta(days=60)
AFTER_DUE: Final = timedelta(days=30)
AFTER_ROW: Final = timedelta(days=7)

_WRITE_UNIT: Final = 1024
_KEY_BYTES: Final = 128
"""About what an item's keys and names take beside its content."""


@dataclass(frozen=True, slots=True)
class ContentItem:
    """A body or result ready to be stored: its name, its item, and the object in S3 if its content
    goes there.
    """

    ref: str
    item: Item = field(repr=False)
    object_key: str | None = None
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class _Family:
    """A task's bodies, or its results: the prefix of their keys, and the attribute of their
    content.
    """

    task_id: str
    prefix: str
    attr: Attr

    def key(self, ref: str) -> Item:
        return {Attr.TASK_ID: text(self.task_id), Attr.KIND: text(self.prefix + ref)}


def _bodies_of(task_id: str) -> _Family:
    return _Family(task_id, BODY_PREFIX, Attr.PAYLOAD)


def _results_of(task_id: str) -> _Family:
    return _Family(task_id, RESULT_PREFIX, Attr.RESULT)


def first_end(*, due_at: datetime, now: datetime) -> datetime:
    """The first end of a new task's body and references."""
    return max(now, due_at) + LIFE


class Bodies:
    """Body and result items in the tasks table, with large content in S3 if there is a bucket."""

    def __init__(
        self,
        sender: Sender,
        tables: Tables,
        clock: Clock,
        objects: ClaimCheck | None,
        s3_above: int,
    ) -> None:
        self._sender = sender
        self._table = tables.tasks
        self._clock = clock
        self._objects = objects
        self._most_in_item = min(s3_above, MAX_STORED_BYTES)

    @property
    def objects(self) -> ClaimCheck | None:
        """The bucket with large content, None without one."""
        return self._objects

    # -- building, before anything is written ------------------------------------------------------

    def body(self, task: Task, ref: str, ends_at: datetime | None, *, life: str) -> ContentItem:
        """The body of a task's life. Raises InputInvalid when it needs a bucket and there is
        none.
        """
        meta = meta_of(task)
        content = _packed(
            {Attr.PAYLOAD: task.payload, Attr.META: compact_json(meta) if meta else b""}
        )
        self._check_size("payload", len(task.payload), content.get(Attr.PAYLOAD), task.id)
        return self._content_item(_bodies_of(task.id), ref, content, life, ends_at)

    def result(
        self,
        task_id: str,
        ref: str,
        result: Result,
        attempt: Attempt,
        ends_at: datetime | None,
        *,
        life: str,
    ) -> ContentItem:
        """The result of a task's life, with what of the successful attempt does not fit into the
        row. Raises InputInvalid when it needs a bucket and there is none.
        """
        unknown = compact_json(dict(attempt.unknown)) if attempt.unknown else b""
        content = _packed({Attr.RESULT: result.content, Attr.UNKNOWN: unknown})
        if result.content_type is not None:
            content[Attr.RESULT_TYPE] = text(result.content_type)
        if attempt.worker is not None:
            content[Attr.WORKER] = text(attempt.worker)
        self._check_size("result", len(result.content or b""), content.get(Attr.RESULT), task_id)
        return self._content_item(_results_of(task_id), ref, content, life, ends_at)

    def _check_size(self, name: str, size: int, stored: Value | None, task_id: str) -> None:
        if self._objects is None and stored is not None and len(stored["B"]) > MAX_STORED_BYTES:
            raise InputInvalid(
                name,
                f"is {size} bytes long; without RDQ_BODY_BUCKET the limit is {MAX_STORED_BYTES}",
                hint="set RDQ_BODY_BUCKET, so that larger ones go to S3",
                task_id=task_id,
            )

    def _content_item(
        self, family: _Family, ref: str, content: Item, life: str, ends_at: datetime | None
    ) -> ContentItem:
        content = {**content, Attr.LIFE: text(life)}
        stored = content.get(family.attr, {}).get("B", b"")
        if self._objects is None or len(stored) <= self._most_in_item:
            return ContentItem(ref, with_end({**family.key(ref), **content}, ends_at))
        # Said in the name, so that only content in S3 costs a read when it is discarded.
        ref = IN_S3 + ref
        s3_key = object_key(family.task_id, ref, ends_at=ends_at, now=self._clock.now())
        rest = {attr: value for attr, value in content.items() if attr != family.attr}
        item = {**family.key(ref), **rest, Attr.S3_KEY: text(s3_key)}
        return ContentItem(ref, with_end(item, ends_at), s3_key, stored)

    # -- writing and reading -----------------------------------------------------------------------

    def put(self, content: ContentItem) -> None:
        """Store it under its name, which no other writer has: an item that exists is ours."""
        self._put_object(content)
        try:
            self._sender.put(self._table, content.item, all_of(IS_FRESH), {})
        except ConditionFailed:
            return

    def put_all(self, contents: Sequence[ContentItem]) -> None:
        """Store many, in batches."""
        for content in contents:
            self._put_object(content)
        self._sender.put_all(self._table, [content.item for content in contents])

    def _put_object(self, content: ContentItem) -> None:
        # The object first: an item never names one that does not exist yet.
        if content.object_key is not None:
            self._bucket(content.ref).put(content.object_key, content.content)

    def fields(self, row: StateRow) -> dict[str, Any]:
        """The fields of a task that describe its call: payload, headers and so on. Raises
        CorruptItem when the body is missing or damaged.
        """
        if row.body_ref is None:
            return read_inline(reader_of(row.item))
        return read_body(self._read(_bodies_of(row.task.id), row.body_ref, "body"))

    def result_of(self, row: StateRow) -> Reader:
        """The item or row that has the result. Raises CorruptItem when it is missing."""
        if row.result_ref is None:
            return reader_of(row.item)
        return self._read(_results_of(row.task.id), row.result_ref, "result")

    def _read(self, family: _Family, ref: str, what: str) -> Reader:
        item = self._sender.get(self._table, family.key(ref))
        if item is not None and Attr.S3_KEY in item:
            content = self._bucket(ref).get(item[Attr.S3_KEY]["S"])
            item = None if content is None else {**item, family.attr: {"B": content}}
        if item is None:
            raise CorruptItem(
                f"the {what} of task {family.task_id} is missing",
                task_id=family.task_id,
                hint="it was removed by hand, or has expired",
            )
        return Reader(item, f"the {what} of task {family.task_id}", family.task_id)

    def _bucket(self, ref: str) -> ClaimCheck:
        if self._objects is None:
            raise Unavailable(
                f"{ref} is in S3, and RDQ_BODY_BUCKET is not set here", hint="set RDQ_BODY_BUCKET"
            )
        return self._objects

    # -- deleting ----------------------------------------------------------------------------------

    def discard(
        self,
        task_id: str,
        *,
        bodies: tuple[str | None, ...] = (),
        results: tuple[str | None, ...] = (),
    ) -> None:
        """Delete bodies and results that no row names, with their objects. None is passed over."""
        keys = [_bodies_of(task_id).key(ref) for ref in bodies if ref]
        keys += [_results_of(task_id).key(ref) for ref in results if ref]
        # The object before its item: only the item knows the object's key.
        for key in keys:
            if self._objects is not None and IN_S3 in key[Attr.KIND]["S"]:
                item = self._sender.get(self._table, key) or {}
                if Attr.S3_KEY in item:
                    self._objects.delete(item[Attr.S3_KEY]["S"])
        self._sender.delete_all(self._table, keys)

    def discard_life(self, task_id: str, life: str) -> None:
        """Delete every body and result of a life that has ended."""
        bodies = self._refs_of(task_id, BODY_PREFIX, life)
        results = self._refs_of(task_id, RESULT_PREFIX, life)
        self.discard(task_id, bodies=bodies, results=results)

    def _refs_of(self, task_id: str, prefix: str, life: str) -> tuple[str, ...]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#task_id = :task_id AND begins_with(#kind, :prefix)",
            "FilterExpression": CLAUSES[IS_THIS_LIFE],
            "ProjectionExpression": Attr.KIND.alias,
            "ConsistentRead": True,
        }
        values = {":task_id": text(task_id), ":prefix": text(prefix), ":life": text(life)}
        items = self._sender.query_all(request, values)
        return tuple(item[Attr.KIND]["S"].removeprefix(prefix) for item in items)

    # -- living long enough ------------------------------------------------------------------------

    def extend_for_run(self, row: StateRow, *, due_at: datetime, now: datetime) -> Item:
        """Make the body live long enough for a run at `due_at`; its new end, which the write of the
        row has to store.
        """
        if (
            row.body_ref is None
            or row.body_ends_at is None
            or row.body_ends_at >= due_at + AFTER_DUE
        ):
            return {}
        return self._renew(row, first_end(due_at=due_at, now=now))

    def extend_for_row(
        self, row: StateRow, *, expires_at: datetime | None, now: datetime
    ) -> tuple[Item, tuple[Attr, ...]]:
        """Make the body outlive a row that expires at `expires_at` (None: never); the attributes
        that the write of the row has to set, and to remove.
        """
        if row.body_ref is None or row.body_ends_at is None:
            return {}, ()
        if expires_at is None:
            # The body before the row: after a crash in between, no row outlives its body.
            unending = change(self._copy_object(row, None), (Attr.EXPIRES_AT,))
            self._change_end(row, unending, all_of(BODY_IS_THERE), {})
            return {}, (Attr.BODY_ENDS_AT,)
        if row.body_ends_at >= expires_at + AFTER_ROW:
            return {}, ()
        return self._renew(row, max(now + LIFE, expires_at + AFTER_ROW)), ()

    def _renew(self, row: StateRow, ends_at: datetime) -> Item:
        end = number(seconds_up(ends_at))
        # Stored on the body first: a row never records a later end than its body has.
        sets = {Attr.EXPIRES_AT: end, **self._copy_object(row, ends_at)}
        self._change_end(
            row, change(sets), all_of(BODY_IS_THERE, BODY_ENDS_SOONER), {":body_ends_at": end}
        )
        return {Attr.BODY_ENDS_AT: end}

    def _copy_object(self, row: StateRow, ends_at: datetime | None) -> Item:
        """Copy content in S3 under a key whose lifecycle rule keeps it until `ends_at`; the old
        object expires by its own rule.
        """
        ref = row.body_ref or ""
        if not ref.startswith(IN_S3):
            return {}
        item = self._sender.get(self._table, _bodies_of(row.task.id).key(ref)) or {}
        old = item.get(Attr.S3_KEY, {}).get("S")
        new = object_key(row.task.id, ref, ends_at=ends_at, now=self._clock.now())
        if old is None or old == new or not self._bucket(ref).copy(old, new):
            return {}
        return {Attr.S3_KEY: text(new)}

    def _change_end(
        self, row: StateRow, end: tuple[str, Any], condition: str, values: Mapping[str, Value]
    ) -> None:
        key = _bodies_of(row.task.id).key(row.body_ref or "")
        try:
            self._sender.update(
                update_of(self._table, key, end, condition, values), returning=False
            )
        except ConditionFailed:
            # It lives longer already, or is missing, which the run that needs it will report.
            return


def read_body(reader: Reader) -> dict[str, Any]:
    """The fields of a task that are in its body item. Raises CorruptItem."""
    meta = reader.json_of(Attr.META, unpacked(reader, Attr.META))
    fields = {} if meta is None else fields_of(reader, meta)
    return {**fields, "payload": unpacked(reader, Attr.PAYLOAD) or b""}


# -- compression -----------------------------------------------------------------------------------


def _packed(parts: Mapping[Attr, bytes | None]) -> Item:
    """Bytes as attributes, each compressed where that saves a write unit. Absent parts are left
    out, and empty ones too, apart from an empty result.
    """
    kept = {
        attr: part
        for attr, part in parts.items()
        if part or (part is not None and attr is Attr.RESULT)
    }
    smaller = {attr: _compressed(part) for attr, part in kept.items()}
    item: Item = {attr: binary(smaller[attr] or part) for attr, part in kept.items()}
    compressed = " ".join(attr.value for attr, part in smaller.items() if part is not None)
    return {**item, Attr.ENCODING: text(compressed)} if compressed else item


def unpacked(reader: Reader, attr: Attr) -> bytes | None:
    """The bytes of an attribute as they were before they were packed. Raises CorruptItem."""
    compressed = (reader.maybe_text(Attr.ENCODING) or "").split()
    return reader.unpacked(attr, compressed=attr.value in compressed)


def _compressed(content: bytes) -> bytes | None:
    """The content compressed, None where that saves no write unit."""
    # It costs one unit either way.
    if len(content) + _KEY_BYTES <= _WRITE_UNIT:
        return None
    smaller = zlib.compress(content)
    return smaller if _units_of(smaller) < _units_of(content) else None


def _units_of(content: bytes) -> int:
    return -(-(len(content) + _KEY_BYTES) // _WRITE_UNIT)
