"""Bodies and results outside the state row: put before the row names them, kept as long as their
task.

A body's end obeys one rule: before a write that sets a due time it is at least 30 days after that,
and before one that sets the row's end at least seven days after that. So a live task always finds
its body, and an orphan goes by itself. Content over 256 KiB goes to S3 behind a claim check;
without a bucket it is refused before anything is written.
"""

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
from rdq_core.stores.dynamodb import contents
from rdq_core.stores.dynamodb.claim_check import CHECKED, ClaimCheck, key_for
from rdq_core.stores.dynamodb.expressions import (
    BODY_ENDS_SOONER,
    BODY_IS_THERE,
    CLAUSES,
    IS_FRESH,
    IS_THIS_LIFE,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.items import StateRow
from rdq_core.stores.dynamodb.schema import BODY_PREFIX, RESULT_PREFIX, Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import Item, Reader, Value, number, seconds_up, text

MAX_STORED_BYTES: Final = 256 * KIB
LIFE: Final = timedelta(days=60)
AFTER_DUE: Final = timedelta(days=30)
AFTER_ROW: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Outside:
    """A body or result as it will be stored: its name, its item, and what goes to S3 under which
    key, if any does.
    """

    ref: str
    item: Item = field(repr=False)
    key: str | None = None
    content: bytes = field(default=b"", repr=False)


class Bodies:
    """Body and result items in the tasks table, with S3 behind them when there is a bucket."""

    def __init__(
        self, sender: Sender, tables: Tables, clock: Clock, checks: ClaimCheck | None, s3_above: int
    ) -> None:
        self._sender = sender
        self._table = tables.tasks
        self._clock = clock
        self._checks = checks
        self._most_in_item = min(s3_above, MAX_STORED_BYTES)

    # -- making, before anything is written --------------------------------------------------------

    def body(self, task: Task, ref: str, ends_at: datetime | None, *, life: str) -> Outside:
        """The body of a task's life. Raises InputInvalid when it needs a bucket and there is none."""
        content = {**contents.body_content(task), Attr.LIFE: text(life)}
        self._check_size("payload", len(task.payload), content.get(Attr.PAYLOAD), task.id)
        return self._outside(_Place(task.id, BODY_PREFIX, Attr.PAYLOAD), ref, content, ends_at)

    def result(
        self,
        task_id: str,
        ref: str,
        result: Result,
        attempt: Attempt,
        ends_at: datetime | None,
        *,
        life: str,
    ) -> Outside:
        """The result of a task's life. Raises InputInvalid when it needs a bucket and there is
        none.
        """
        content = {**contents.result_content(result, attempt), Attr.LIFE: text(life)}
        self._check_size("result", len(result.content or b""), content.get(Attr.RESULT), task_id)
        return self._outside(_Place(task_id, RESULT_PREFIX, Attr.RESULT), ref, content, ends_at)

    def _check_size(self, name: str, size: int, stored: Value | None, task_id: str) -> None:
        if self._checks is None and stored is not None and len(stored["B"]) > MAX_STORED_BYTES:
            raise InputInvalid(
                name,
                f"is {size} bytes long; {MAX_STORED_BYTES} are the limit while RDQ_BODY_BUCKET is not set",
                hint="set RDQ_BODY_BUCKET, so that larger ones go to S3",
                task_id=task_id,
            )

    def _outside(
        self, place: "_Place", ref: str, content: Item, ends_at: datetime | None
    ) -> Outside:
        stored = content.get(place.attr, {}).get("B", b"")
        if self._checks is None or len(stored) <= self._most_in_item:
            return Outside(ref, contents.with_end({**place.key(ref), **content}, ends_at))
        ref = CHECKED + ref
        s3_key = key_for(place.task_id, ref, ends_at=ends_at, now=self._clock.now())
        rest = {attr: value for attr, value in content.items() if attr != place.attr}
        item = {**place.key(ref), **rest, Attr.S3_KEY: text(s3_key)}
        return Outside(ref, contents.with_end(item, ends_at), s3_key, stored)

    # -- writing and reading -----------------------------------------------------------------------

    def put(self, outside: Outside) -> None:
        """Store it under a name that only we know. What is there already is ours."""
        if outside.key is not None:
            self._bucket(outside.ref).put(outside.key, outside.content)
        try:
            self._sender.put(self._table, outside.item, all_of(IS_FRESH), {})
        except ConditionFailed:
            return

    def put_all(self, outsides: Sequence[Outside]) -> None:
        """The same for many, in batches."""
        for outside in outsides:
            if outside.key is not None:
                self._bucket(outside.ref).put(outside.key, outside.content)
        self._sender.put_all(self._table, [outside.item for outside in outsides])

    def fields(self, row: StateRow) -> dict[str, Any]:
        """What a task carries of its call: payload, headers and so on. Raises CorruptItem when its
        body is missing.
        """
        if row.body_ref is None:
            return contents.read_inline(
                Reader(row.item, f"the state row of task {row.task.id}", row.task.id)
            )
        return contents.read_body(
            self._read(_Place(row.task.id, BODY_PREFIX, Attr.PAYLOAD), row.body_ref, "body")
        )

    def result_of(self, row: StateRow) -> Reader:
        """The item or row that has the result. Raises CorruptItem when it is missing."""
        if row.result_ref is None:
            return Reader(row.item, f"the state row of task {row.task.id}", row.task.id)
        return self._read(_Place(row.task.id, RESULT_PREFIX, Attr.RESULT), row.result_ref, "result")

    def discard(
        self,
        task_id: str,
        *,
        bodies: tuple[str | None, ...] = (),
        results: tuple[str | None, ...] = (),
    ) -> None:
        """Delete bodies and results that are proved to be nobody's, and what they have in S3."""
        keys = [_Place(task_id, BODY_PREFIX, Attr.PAYLOAD).key(ref) for ref in bodies if ref]
        keys += [_Place(task_id, RESULT_PREFIX, Attr.RESULT).key(ref) for ref in results if ref]
        for key in keys:
            if self._checks is not None and CHECKED in key[Attr.KIND]["S"]:
                self._discard_object(self._checks, key)
        self._sender.delete_all(self._table, keys)

    @property
    def objects(self) -> ClaimCheck | None:
        """The bucket that content in S3 is in, None without one."""
        return self._checks

    def _discard_object(self, checks: ClaimCheck, key: Item) -> None:
        item = self._sender.get(self._table, key) or {}
        if Attr.S3_KEY in item:
            checks.delete(item[Attr.S3_KEY]["S"])

    def discard_life(self, task_id: str, life: str) -> None:
        """Delete every body and result of a life that has ended, published or not."""
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

    def keep_for_run(self, row: StateRow, *, due_at: datetime, now: datetime) -> Item:
        """Let the body live long enough for a run at `due_at`; what the row must then remember of
        its end.
        """
        if (
            row.body_ref is None
            or row.body_ends_at is None
            or row.body_ends_at >= due_at + AFTER_DUE
        ):
            return {}
        return self._renew(row, max(now, due_at) + LIFE)

    def keep_for_row(
        self, row: StateRow, *, expires_at: datetime | None, now: datetime
    ) -> tuple[Item, tuple[Attr, ...]]:
        """Let the body outlive a row that ends at `expires_at`, None: never; what the row must
        remember, and forget.
        """
        if row.body_ref is None or row.body_ends_at is None:
            return {}, ()
        if expires_at is None:
            self._make_lasting(row)
            return {}, (Attr.BODY_ENDS_AT,)
        if row.body_ends_at >= expires_at + AFTER_ROW:
            return {}, ()
        return self._renew(row, max(now + LIFE, expires_at + AFTER_ROW)), ()

    def _renew(self, row: StateRow, ends_at: datetime) -> Item:
        end = number(seconds_up(ends_at))
        sets = {Attr.EXPIRES_AT: end, **self._moved(row, ends_at)}
        self._change_end(
            row, change(sets), all_of(BODY_IS_THERE, BODY_ENDS_SOONER), {":body_ends_at": end}
        )
        return {Attr.BODY_ENDS_AT: end}

    def _make_lasting(self, row: StateRow) -> None:
        end = change(self._moved(row, None), (Attr.EXPIRES_AT,))
        self._change_end(row, end, all_of(BODY_IS_THERE), {})

    def _moved(self, row: StateRow, ends_at: datetime | None) -> Item:
        """Give content in S3 a longer life as well: a copy under a prefix that stays so long. The
        old one expires.
        """
        ref = row.body_ref or ""
        if not ref.startswith(CHECKED):
            return {}
        place = _Place(row.task.id, BODY_PREFIX, Attr.PAYLOAD)
        old = (self._sender.get(self._table, place.key(ref)) or {}).get(Attr.S3_KEY, {}).get("S")
        new = key_for(row.task.id, ref, ends_at=ends_at, now=self._clock.now())
        if old is None or old == new or not self._bucket(ref).copy(old, new):
            return {}
        return {Attr.S3_KEY: text(new)}

    def _change_end(
        self, row: StateRow, end: tuple[str, Any], condition: str, values: Mapping[str, Value]
    ) -> None:
        key = _Place(row.task.id, BODY_PREFIX, Attr.PAYLOAD).key(row.body_ref or "")
        try:
            self._sender.change(update_of(self._table, key, end, condition, values))
        except ConditionFailed:
            # It lives longer already, or is gone; a run that needs it will find out which.
            return

    # -- inside ------------------------------------------------------------------------------------

    def _read(self, place: "_Place", ref: str, word: str) -> Reader:
        item = self._sender.get(self._table, place.key(ref))
        if item is not None and Attr.S3_KEY in item:
            content = self._bucket(ref).get(item[Attr.S3_KEY]["S"])
            item = None if content is None else {**item, place.attr: {"B": content}}
        if item is None:
            raise CorruptItem(
                f"the {word} of task {place.task_id} is missing",
                task_id=place.task_id,
                hint="it was removed by hand, or outlived its end",
            )
        return Reader(item, f"the {word} of task {place.task_id}", place.task_id)

    def _bucket(self, ref: str) -> ClaimCheck:
        if self._checks is None:
            raise Unavailable(
                f"{ref} is in S3, and RDQ_BODY_BUCKET is not set here", hint="set RDQ_BODY_BUCKET"
            )
        return self._checks


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a task's bodies or results lie, and which attribute has their content."""

    task_id: str
    prefix: str
    attr: Attr

    def key(self, ref: str) -> Item:
        """The key of one of them."""
        return {Attr.TASK_ID: text(self.task_id), Attr.KIND: text(self.prefix + ref)}


def first_end(*, due_at: datetime, now: datetime) -> datetime:
    """Until when the body of a new task is kept."""
    return max(now, due_at) + LIFE
