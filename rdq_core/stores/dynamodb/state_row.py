"""The state row of a task: what a submit writes, and everything that can be read from a stored row.

The invariant: a row stays within one write unit (two, where its names alone are longer) whatever
happens to the task. Content that does not fit beside everything that may yet be added is stored as
an item of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.envelope import VERSION
from rdq_core.domain.lease import Claim, Unreached
from rdq_core.domain.lifecycle import Result, Row
from rdq_core.domain.task import DEFAULT_CONTENT_TYPE, Status, Task, failure_of
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.schema import STATE, Attr, partition_of, queue_of
from rdq_core.stores.dynamodb.values import (
    Item,
    Reader,
    binary,
    compact_json,
    item_size,
    moment,
    number,
    seconds_up,
    text,
)

# -- a new row -------------------------------------------------------------------------------------


SUBMITTED: Final = frozenset(
    {
        Attr.TASK_ID,
        Attr.KIND,
        Attr.VERSION,
        Attr.LIFE,
        Attr.STATUS,
        Attr.QUEUE_SHARD,
        Attr.DUE_AT,
        Attr.FENCING_TOKEN,
        Attr.CREATED_AT,
        Attr.ATTEMPT_COUNT,
        Attr.HISTORY_LENGTH,
        Attr.HANDLER_REF,
        Attr.HANDLER_VERSION,
        Attr.CONCURRENCY_KEY,
        Attr.REFERENCES,
        Attr.REFERENCES_END_AT,
    }
)
"""The attributes of a submitted row, apart from those of its body."""

BODY: Final = (
    Attr.PAYLOAD,
    Attr.CONTENT_TYPE,
    Attr.META,
    Attr.BODY_REF,
    Attr.BODY_ENDS_AT,
    Attr.PAYLOAD_SIZE,
)
"""The attributes of a row's body, in the row or outside of it."""

_META: Final = {
    "content_type": "payload_content_type",
    "headers": "headers",
    "target": "target",
    "requested_by": "requested_by",
    "unknown": "unknown",
}
"""The fields of a task by their names in stored meta data."""


def new_row(row: Row, *, shards: int) -> Item:
    """The state row of a new task, without its body."""
    task = row.task
    item: Item = {
        Attr.TASK_ID: text(task.id),
        Attr.KIND: text(STATE),
        Attr.VERSION: number(VERSION),
        Attr.LIFE: text(row.life),
        Attr.STATUS: text(task.status),
        Attr.QUEUE_SHARD: text(partition_of(task, shards)),
        # Always there: the due index is sparse, and a row without a due time would not be found.
        Attr.DUE_AT: moment(task.next_attempt_at or task.created_at),
        Attr.FENCING_TOKEN: number(row.fencing_token),
        Attr.CREATED_AT: moment(task.created_at),
        Attr.ATTEMPT_COUNT: number(task.attempt_count),
        Attr.HISTORY_LENGTH: number(len(task.attempts)),
        Attr.HANDLER_REF: text(task.handler_ref),
    }
    if task.handler_version is not None:
        item[Attr.HANDLER_VERSION] = text(task.handler_version)
    if task.concurrency_key is not None:
        item[Attr.CONCURRENCY_KEY] = text(task.concurrency_key)
    return item


def meta_of(task: Task) -> dict[str, Any]:
    """What a task carries beside its payload, without empty and default values."""
    meta: dict[str, Any] = {}
    if task.payload_content_type != DEFAULT_CONTENT_TYPE:
        meta["content_type"] = task.payload_content_type
    if task.headers:
        meta["headers"] = dict(task.headers)
    if task.target is not None:
        meta["target"] = task.target
    if task.requested_by is not None:
        meta["requested_by"] = task.requested_by
    if task.unknown:
        meta["unknown"] = dict(task.unknown)
    return meta


def fields_of(reader: Reader, meta: Any) -> dict[str, Any]:
    """Fields of a task from stored meta data. Raises CorruptItem."""
    if not isinstance(meta, Mapping):
        raise reader.corrupt(f"{Attr.META} is not an object")
    return {name: meta[stored] for stored, name in _META.items() if stored in meta}


def inline_body(task: Task) -> Item:
    """The payload and its meta data as attributes of the row."""
    meta = meta_of(task)
    content_type = meta.pop("content_type", None)
    item: Item = {}
    if task.payload:
        item[Attr.PAYLOAD] = binary(task.payload)
    if content_type:
        item[Attr.CONTENT_TYPE] = text(content_type)
    if meta:
        item[Attr.META] = binary(compact_json(meta))
    return item


def inline_result(result: Result, worker: str | None) -> Item:
    """The result as attributes of the row, with the worker that produced it."""
    item: Item = {}
    if result.content is not None:
        item[Attr.RESULT] = binary(result.content)
    if result.content_type is not None:
        item[Attr.RESULT_TYPE] = text(result.content_type)
    if worker is not None:
        item[Attr.WORKER] = text(worker)
    return item


def body_pointer(ref: str, ends_at: datetime | None, payload_size: int) -> Item:
    """The attributes of a row whose body is an item of its own."""
    item: Item = {Attr.BODY_REF: text(ref), Attr.PAYLOAD_SIZE: number(payload_size)}
    return item if ends_at is None else {**item, Attr.BODY_ENDS_AT: number(seconds_up(ends_at))}


# -- the room in a row -----------------------------------------------------------------------------

# A write is billed by the KiB, rounded up ("Write request units").
WRITE_UNIT: Final = 1024
SLACK: Final = 16
"""For numbers that gain digits and for a longer status."""

_MOMENT: Final = number(9_999_999_999_999)
_SECONDS: Final = number(9_999_999_999)
_KEPT: Final[Item] = {
    Attr.LAST_ATTEMPT: text("A#9999#" + 16 * "f"),
    Attr.REDRIVE_COUNT: number(9999),
    Attr.SETTLED_BY: text(16 * "f"),
    Attr.SETTLED_AS: text("dead-letter"),
    Attr.OP_ID: text(36 * "f"),
}
_UNREACHED: Final[Item] = {
    Attr.UNREACHED: number(9999),
    Attr.UNREACHED_SINCE: _MOMENT,
    Attr.UNADOPTED: number(9),
}
_HELD: Final[Item] = {
    Attr.CLAIM_TOKEN: text(32 * "f"),
    Attr.CLAIMED_AT: _MOMENT,
    Attr.HANDED_OVER: number(1),
    **_UNREACHED,
}
_ENDED: Final[Item] = {Attr.COMPLETED_AT: _MOMENT, Attr.EXPIRES_AT: _SECONDS}
_SUCCEEDED: Final[Item] = {
    **_ENDED,
    Attr.SUCCESS_STARTED: _MOMENT,
    Attr.SUCCESS_FINISHED: _MOMENT,
    Attr.WORKER: text(110 * "f"),
}
_FAILED: Final[Item] = {**_ENDED, Attr.FAILURE: text(128 * "f")}
GROWTH: Final = SLACK + item_size(_KEPT) + max(map(item_size, (_HELD, _SUCCEEDED, _FAILED)))
"""The most that a task's life can add to its row: the attributes of one status at a time, and those
that stay.
"""
_POINTER_BYTES: Final = item_size(
    {**body_pointer(16 * "f", None, 1 << 20), Attr.BODY_ENDS_AT: _SECONDS}
)


def room_for_body(row: Item) -> int:
    """How many bytes of a body fit into the row beside everything that may yet be added to it."""
    size = item_size(row) + GROWTH
    # With the pointer, which the row gets if its body turns out not to fit.
    return _units_for(size + _POINTER_BYTES) - size


def room_for_result(settled: Mapping[str, Any]) -> int:
    """How many bytes of a result fit into a row that is otherwise as it will be; negative when none
    do.
    """
    size = item_size(settled) + SLACK + item_size({Attr.OP_ID: _KEPT[Attr.OP_ID]})
    return _units_for(size) - size


def _units_for(size: int) -> int:
    return WRITE_UNIT if size <= WRITE_UNIT else 2 * WRITE_UNIT


# -- a stored row ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """A state row as it was read. `task` has no history, and its payload and headers only when they
    are in the row.

    `last_attempt` and `history_length` publish the history; `body_ref` and `result_ref` name items
    of their own; `references` are the digests of the target and the requester. `settled_by`,
    `settled_as` and `op_id` mark whose write made the row what it is. `item` is the row as stored.
    """

    task: Task
    life: str
    fencing_token: int
    partition: str
    history_length: int
    payload_size: int
    token: str | None = None
    claimed_at: datetime | None = None
    handed_over: bool = False
    unreached: Unreached | None = None
    expires_at: datetime | None = None
    last_attempt: str | None = None
    settled_by: str | None = None
    settled_as: str | None = None
    op_id: str | None = None
    body_ref: str | None = None
    body_ends_at: datetime | None = None
    result_ref: str | None = None
    references: tuple[str, ...] = ()
    references_end_at: datetime | None = None
    item: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def is_gone(self, now: datetime) -> bool:
        """Whether the row's retention has ended: it counts as absent, removed by TTL or not."""
        return self.expires_at is not None and self.expires_at <= now

    @property
    def due_at(self) -> datetime | None:
        """The row's time in the due index: of the next attempt, or of the lease's end."""
        return self.task.next_attempt_at or self.task.lease_expires_at

    @property
    def success(self) -> Attempt | None:
        """The attempt that succeeded, which the row records itself. Its fields that did not fit are
        in the result item.
        """
        if Attr.SUCCESS_STARTED not in self.item:
            return None
        reader = reader_of(self.item)
        return Attempt(
            attempt_no=self.history_length + 1,
            started_at=reader.moment(Attr.SUCCESS_STARTED),
            finished_at=reader.maybe_moment(Attr.SUCCESS_FINISHED),
            outcome=Outcome.SUCCESS,
            worker=reader.maybe_text(Attr.WORKER),
            fencing_token=self.fencing_token,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowClaim(Claim):
    """A claim with the row that it was made on: settling and loading need no read of it."""

    row: StateRow = field(repr=False)


def reader_of(item: Mapping[str, Any]) -> Reader:
    """Strict access to a state row."""
    task_id = str(item.get(Attr.TASK_ID, {}).get("S", "?"))
    return Reader(item, f"the state row of task {task_id}", task_id)


def read_row(item: Mapping[str, Any]) -> StateRow:
    """A stored row; a damaged body in it is passed over. Raises CorruptItem."""
    reader = reader_of(item)
    # First of all: a newer rdq may mean something else by the other attributes.
    version = reader.number(Attr.VERSION)
    if not 1 <= version <= VERSION:
        raise reader.corrupt(
            f"its envelope version is {version}, and this rdq reads 1 to {VERSION}"
        )
    partition = reader.text(Attr.QUEUE_SHARD)
    payload_size = reader.maybe_number(Attr.PAYLOAD_SIZE)
    # Only rows whose body is an item of its own store its size.
    if payload_size is None:
        payload_size = len(item.get(Attr.PAYLOAD, {}).get("B", b""))
    row = StateRow(
        task=_task(reader, partition),
        life=reader.text(Attr.LIFE),
        fencing_token=reader.number(Attr.FENCING_TOKEN),
        partition=partition,
        history_length=reader.number(Attr.HISTORY_LENGTH),
        payload_size=payload_size,
        token=reader.maybe_text(Attr.CLAIM_TOKEN),
        claimed_at=reader.maybe_moment(Attr.CLAIMED_AT),
        handed_over=reader.maybe_number(Attr.HANDED_OVER) is not None,
        unreached=_unreached(reader) if Attr.UNREACHED in item else None,
        expires_at=reader.maybe_seconds(Attr.EXPIRES_AT),
        last_attempt=reader.maybe_text(Attr.LAST_ATTEMPT),
        settled_by=reader.maybe_text(Attr.SETTLED_BY),
        settled_as=reader.maybe_text(Attr.SETTLED_AS),
        op_id=reader.maybe_text(Attr.OP_ID),
        body_ref=reader.maybe_text(Attr.BODY_REF),
        body_ends_at=reader.maybe_seconds(Attr.BODY_ENDS_AT),
        result_ref=reader.maybe_text(Attr.RESULT_REF),
        references=tuple((reader.maybe_text(Attr.REFERENCES) or "").split()),
        references_end_at=reader.maybe_seconds(Attr.REFERENCES_END_AT),
        item=item,
    )
    _check_consistent(row, reader)
    return row


def maybe_row(item: Mapping[str, Any] | None) -> StateRow | None:
    """The row that came back with a refusal; None when there is none or it cannot be read, so that
    it proves nothing.
    """
    try:
        return None if item is None else read_row(item)
    except CorruptItem:
        return None


def claim_of(row: StateRow) -> RowClaim:
    """The claim that holds a row in flight."""
    reader = reader_of(row.item)
    return RowClaim(
        task=row.task,
        # From the item, because the row's own fields are optional: without them it is corrupt.
        token=reader.text(Attr.CLAIM_TOKEN),
        fencing_token=row.fencing_token,
        claimed_at=reader.moment(Attr.CLAIMED_AT),
        lease_expires_at=reader.moment(Attr.DUE_AT),
        history_length=row.history_length,
        last_attempt=row.last_attempt,
        life=row.life,
        handed_over=row.handed_over,
        unreached=row.unreached,
        row=row,
    )


def read_inline(reader: Reader) -> dict[str, Any]:
    """The fields of a task that are in its row: payload, headers and so on. Raises CorruptItem."""
    fields: dict[str, Any] = {}
    if Attr.META in reader.item:
        fields = fields_of(reader, reader.maybe_json(Attr.META))
    content_type = reader.maybe_text(Attr.CONTENT_TYPE)
    if content_type is not None:
        fields["payload_content_type"] = content_type
    fields["payload"] = reader.maybe_bytes(Attr.PAYLOAD) or b""
    return fields


def unreached_item(unreached: Unreached | None) -> Item:
    """The attributes of a row whose function could not be reached."""
    if unreached is None:
        return {}
    return {
        Attr.UNREACHED: number(unreached.times),
        Attr.UNREACHED_SINCE: moment(unreached.since),
        Attr.UNADOPTED: number(unreached.unadopted),
    }


def _unreached(reader: Reader) -> Unreached:
    return Unreached(
        reader.number(Attr.UNREACHED),
        reader.moment(Attr.UNREACHED_SINCE),
        reader.maybe_number(Attr.UNADOPTED) or 0,
    )


def _task(reader: Reader, partition: str) -> Task:
    status = reader.choice(Attr.STATUS, Status)
    # One attribute for both times: one index finds waiting tasks and lapsed leases alike.
    due_at = reader.maybe_moment(Attr.DUE_AT)
    try:
        carried = read_inline(reader)
    except CorruptItem:
        # A damaged body does not hide the row: loading the body reports it.
        carried = {}
    return Task(
        id=reader.text(Attr.TASK_ID),
        queue=queue_of(partition),
        handler_ref=reader.text(Attr.HANDLER_REF),
        handler_version=reader.maybe_text(Attr.HANDLER_VERSION),
        status=status,
        attempt_count=reader.number(Attr.ATTEMPT_COUNT),
        redrive_count=reader.maybe_number(Attr.REDRIVE_COUNT) or 0,
        next_attempt_at=due_at if status is Status.PENDING else None,
        lease_expires_at=due_at if status is Status.IN_FLIGHT else None,
        created_at=reader.moment(Attr.CREATED_AT),
        completed_at=reader.maybe_moment(Attr.COMPLETED_AT),
        failure=failure_of(reader.maybe_text(Attr.FAILURE), None),
        concurrency_key=reader.maybe_text(Attr.CONCURRENCY_KEY),
        **carried,
    )


def _check_consistent(row: StateRow, reader: Reader) -> None:
    status = row.task.status
    if status is Status.IN_FLIGHT and (row.token is None or row.claimed_at is None):
        raise reader.corrupt("it is in flight, but has no claim")
    # An ended task left the due index with its due time; all others must be in it.
    if (Attr.DUE_AT in reader.item) is status.is_terminal:
        raise reader.corrupt(f"it is {status}, which does not go with its due time")
    if row.history_length and row.last_attempt is None:
        raise reader.corrupt("it has a history, but does not name its last record")
