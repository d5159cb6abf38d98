"""The state row: what is written when a task is submitted, and everything that can be read out of a
stored one.

The invariant: a row stays within one write unit (two, where its names alone are longer) whatever
happens to the task, so what doesn't fit beside all that can still be added lives in items of its
own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.envelope import VERSION
from rdq_core.domain.lease import Claim, Unreached
from rdq_core.domain.lifecycle import Row
from rdq_core.domain.task import Status, Task, failure_of
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb import contents
from rdq_core.stores.dynamodb.schema import STATE, Attr, queue_of
from rdq_core.stores.dynamodb.values import (
    Item,
    Reader,
    item_size,
    moment,
    number,
    seconds_up,
    text,
)

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
"""What a task's life can add to its row: attributes of one status at a time, and those that stay.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """A state row as it was read. `task` has no history, and its payload and headers only where
    they are in the row.

    `item` is the row as stored. `last_attempt` and `history_length` publish the history, `body_ref`
    and `result_ref` what lives outside, `references` the digests of its target and requester;
    `settled_by`, `settled_as` and `op_id` tell whose write made the row what it is.
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
        """Whether the row's retention has ended: it counts as absent, removed or not."""
        return self.expires_at is not None and self.expires_at <= now

    @property
    def due_at(self) -> datetime | None:
        """When a sweeper should look."""
        return self.task.next_attempt_at or self.task.lease_expires_at

    @property
    def success(self) -> Attempt | None:
        """The attempt that succeeded, which the row itself records; what didn't fit into it is with
        the result.
        """
        started = self.item.get(Attr.SUCCESS_STARTED)
        if started is None:
            return None
        reader = _reader(self.item)
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
    """A claim that knows the row it was made on, so that settling and loading needn't read it
    again.
    """

    row: StateRow = field(repr=False)


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
"""What a row has when its task is submitted, its body apart."""


def new_row(row: Row, *, partition: str) -> Item:
    """The state row of a new task, without what may live outside."""
    task = row.task
    item: Item = {
        Attr.TASK_ID: text(task.id),
        Attr.KIND: text(STATE),
        Attr.VERSION: number(VERSION),
        Attr.LIFE: text(row.life),
        Attr.STATUS: text(task.status),
        Attr.QUEUE_SHARD: text(partition),
        Attr.DUE_AT: moment(task.next_attempt_at or task.created_at),
        Attr.FENCING_TOKEN: number(row.fencing_token),
        Attr.CREATED_AT: moment(task.created_at),
        Attr.ATTEMPT_COUNT: number(task.attempt_count),
        Attr.HISTORY_LENGTH: number(len(task.attempts)),
        Attr.HANDLER_REF: text(task.handler_ref),
    }
    return item | _optional(task)


def _optional(task: Task) -> Item:
    values = {
        Attr.HANDLER_VERSION: task.handler_version,
        Attr.CONCURRENCY_KEY: task.concurrency_key,
    }
    return {attr: text(value) for attr, value in values.items() if value is not None}


def outside(ref: str, ends_at: datetime | None, payload_size: int) -> Item:
    """What a row has in place of a body that lives outside."""
    item: Item = {Attr.BODY_REF: text(ref), Attr.PAYLOAD_SIZE: number(payload_size)}
    return item if ends_at is None else {**item, Attr.BODY_ENDS_AT: number(seconds_up(ends_at))}


_OUTSIDE_BYTES: Final = item_size({**outside(16 * "f", None, 1 << 20), Attr.BODY_ENDS_AT: _SECONDS})


def room_for_body(row: Item) -> int:
    """How many bytes of a body the row can carry, given everything that may yet be added to it."""
    size = item_size(row) + GROWTH
    return _budget(size + _OUTSIDE_BYTES) - size


def room_for_result(settled: Mapping[str, Any]) -> int:
    """How many bytes of a result a row can carry that is otherwise as it will be. Negative when
    there is no room.
    """
    size = item_size(settled) + SLACK + item_size({Attr.OP_ID: _KEPT[Attr.OP_ID]})
    return _budget(size) - size


def _budget(size: int) -> int:
    return WRITE_UNIT if size <= WRITE_UNIT else 2 * WRITE_UNIT


def read_row(item: Mapping[str, Any]) -> StateRow:
    """Everything in a stored row but what its body says. Raises CorruptItem."""
    reader = _reader(item)
    _check_version(reader)
    partition = reader.text(Attr.QUEUE_SHARD)
    row = StateRow(
        task=_with_inline_body(_task(reader, partition), reader),
        life=reader.text(Attr.LIFE),
        fencing_token=reader.number(Attr.FENCING_TOKEN),
        partition=partition,
        history_length=reader.number(Attr.HISTORY_LENGTH),
        payload_size=_payload_size(reader),
        token=reader.maybe_text(Attr.CLAIM_TOKEN),
        claimed_at=reader.maybe_moment(Attr.CLAIMED_AT),
        handed_over=reader.maybe_number(Attr.HANDED_OVER) is not None,
        unreached=_unreached(reader),
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
    _check_status(row, reader)
    return row


def maybe_row(item: Mapping[str, Any] | None) -> StateRow | None:
    """The row that came back with a refusal, None when there is none or it can't be read: then it
    proves nothing.
    """
    try:
        return None if item is None else read_row(item)
    except CorruptItem:
        return None


def claim_of(row: StateRow) -> RowClaim:
    """The claim that holds a row which is in flight."""
    reader = _reader(row.item)
    return RowClaim(
        task=row.task,
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


def unreached_item(unreached: Unreached | None) -> Item:
    """What a row says about a function that was not reached."""
    if unreached is None:
        return {}
    return {
        Attr.UNREACHED: number(unreached.times),
        Attr.UNREACHED_SINCE: moment(unreached.since),
        Attr.UNADOPTED: number(unreached.unadopted),
    }


def _unreached(reader: Reader) -> Unreached | None:
    times = reader.maybe_number(Attr.UNREACHED)
    if times is None:
        return None
    return Unreached(
        times, reader.moment(Attr.UNREACHED_SINCE), reader.maybe_number(Attr.UNADOPTED) or 0
    )


def _reader(item: Mapping[str, Any]) -> Reader:
    task_id = str(item.get(Attr.TASK_ID, {}).get("S", "?"))
    return Reader(item, f"the state row of task {task_id}", task_id)


def _check_version(reader: Reader) -> None:
    version = reader.number(Attr.VERSION)
    if not 1 <= version <= VERSION:
        raise reader.corrupt(
            f"its envelope version is {version}, and this rdq reads 1 to {VERSION}"
        )


def _check_status(row: StateRow, reader: Reader) -> None:
    held = row.task.status is Status.IN_FLIGHT
    if held and (row.token is None or row.claimed_at is None):
        raise reader.corrupt("it is in flight, but nobody holds it")
    if (row.due_at is None) != row.task.status.is_terminal:
        raise reader.corrupt(f"it is {row.task.status}, which does not go with its due time")
    if row.history_length and row.last_attempt is None:
        raise reader.corrupt("it has a history, but nothing names its last record")


def _task(reader: Reader, partition: str) -> Task:
    status = _status(reader)
    due_at = reader.maybe_moment(Attr.DUE_AT)
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
    )


def _status(reader: Reader) -> Status:
    try:
        return Status(reader.text(Attr.STATUS))
    except ValueError:
        raise reader.corrupt("its status is none that this rdq knows") from None


def _with_inline_body(task: Task, reader: Reader) -> Task:
    # A damaged body doesn't hide the row: whoever needs the body itself finds out.
    try:
        return replace(task, **contents.read_inline(reader))
    except CorruptItem:
        return task


def _payload_size(reader: Reader) -> int:
    outside_size = reader.maybe_number(Attr.PAYLOAD_SIZE)
    return (
        len(reader.item.get(Attr.PAYLOAD, {}).get("B", b""))
        if outside_size is None
        else outside_size
    )
