"""Bodies and results outside the state row: put before the row names them, kept as long as their task.

A body's end obeys one rule: before a write that sets a due time it is at least 30 days after that, and before one that
sets the row's end at least seven days after that. So a live task always finds its body, and an orphan goes by itself.

Content over 256 KiB belongs in S3 behind a claim check, which is not built in yet: it is refused before anything is
written. `stored_size_limit` is the one place that knows.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.limits import KIB
from rdq_core.domain.task import Task
from rdq_core.errors import CorruptItem, InputInvalid
from rdq_core.stores.dynamodb import contents
from rdq_core.stores.dynamodb.expressions import BODY_ENDS_SOONER, BODY_IS_THERE, IS_FRESH, all_of, change
from rdq_core.stores.dynamodb.items import StateRow
from rdq_core.stores.dynamodb.schema import BODY_PREFIX, RESULT_PREFIX, Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import Item, Reader, number, seconds_up, text

MAX_STORED_BYTES: Final = 256 * KIB
LIFE: Final = timedelta(days=60)
AFTER_DUE: Final = timedelta(days=30)
AFTER_ROW: Final = timedelta(days=7)


class Bodies:
    """Body and result items in the tasks table."""

    def __init__(self, sender: Sender, tables: Tables) -> None:
        self._sender = sender
        self._table = tables.tasks

    # -- making, before anything is written -----------------------------------------------------------------------

    def body(self, task: Task, ref: str, ends_at: datetime | None) -> Item:
        """The body of a task as an item. Raises InputInvalid when it is too large for one."""
        content = contents.body_content(task)
        _check_size("payload", len(task.payload), content.get(Attr.PAYLOAD), task.id)
        return contents.with_end({**self._key(task.id, BODY_PREFIX + ref), **content}, ends_at)

    def result(self, task_id: str, ref: str, result: Result, attempt: Attempt, ends_at: datetime | None) -> Item:
        """A result as an item. Raises InputInvalid when it is too large for one."""
        content = contents.result_content(result, attempt)
        _check_size("result", len(result.content or b""), content.get(Attr.RESULT), task_id)
        return contents.with_end({**self._key(task_id, RESULT_PREFIX + ref), **content}, ends_at)

    # -- writing and reading ----------------------------------------------------------------------------------------

    def put(self, item: Item) -> None:
        """Store an item under a name that only we know. One that is there already is ours."""
        try:
            self._sender.put(self._table, item, all_of(IS_FRESH), {})
        except ConditionFailed:
            return

    def fields(self, row: StateRow) -> dict[str, Any]:
        """What a task carries of its call: payload, headers and so on. Raises CorruptItem when its body is missing."""
        if row.body_ref is None:
            return contents.read_inline(Reader(row.item, f"the state row of task {row.task.id}", row.task.id))
        return contents.read_body(self._read(row.task.id, BODY_PREFIX + row.body_ref, "body"))

    def result_of(self, row: StateRow) -> Reader:
        """The item or row that has the result. Raises CorruptItem when it is missing."""
        if row.result_ref is None:
            return Reader(row.item, f"the state row of task {row.task.id}", row.task.id)
        return self._read(row.task.id, RESULT_PREFIX + row.result_ref, "result")

    def discard(
        self, task_id: str, *, bodies: tuple[str | None, ...] = (), results: tuple[str | None, ...] = ()
    ) -> None:
        """Delete bodies and results that are proved to be nobody's."""
        kinds = [BODY_PREFIX + ref for ref in bodies if ref] + [RESULT_PREFIX + ref for ref in results if ref]
        self._sender.delete_all(self._table, [self._key(task_id, kind) for kind in kinds])

    # -- living long enough -------------------------------------------------------------------------------------

    def keep_for_run(self, row: StateRow, *, due_at: datetime, now: datetime) -> Item:
        """Let the body live long enough for a run at `due_at`; what the row must then remember of its end."""
        if row.body_ref is None or row.body_ends_at is None or row.body_ends_at >= due_at + AFTER_DUE:
            return {}
        return self._renew(row, max(now, due_at) + LIFE)

    def keep_for_row(
        self, row: StateRow, *, expires_at: datetime | None, now: datetime
    ) -> tuple[Item, tuple[Attr, ...]]:
        """Let the body outlive a row that ends at `expires_at`, None: never; what the row must remember, and forget."""
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
        self._change_end(
            row, change({Attr.EXPIRES_AT: end}), all_of(BODY_IS_THERE, BODY_ENDS_SOONER), {":body_ends_at": end}
        )
        return {Attr.BODY_ENDS_AT: end}

    def _make_lasting(self, row: StateRow) -> None:
        self._change_end(row, change({}, (Attr.EXPIRES_AT,)), all_of(BODY_IS_THERE), {})

    def _change_end(self, row: StateRow, end: tuple[str, Any], condition: str, values: Mapping[str, Any]) -> None:
        key = self._key(row.task.id, BODY_PREFIX + (row.body_ref or ""))
        try:
            self._sender.update(update_of(self._table, key, end, condition, values))
        except ConditionFailed:
            # It lives longer already, or is gone; a run that needs it will find out which.
            return

    # -- inside ---------------------------------------------------------------------------------------------------

    def _read(self, task_id: str, kind: str, word: str) -> Reader:
        item = self._sender.get(self._table, self._key(task_id, kind))
        if item is None:
            raise CorruptItem(
                f"the {word} of task {task_id} is missing",
                task_id=task_id,
                hint="it was removed by hand, or outlived its end",
            )
        return Reader(item, f"the {word} of task {task_id}", task_id)

    @staticmethod
    def _key(task_id: str, kind: str) -> Item:
        return {Attr.TASK_ID: text(task_id), Attr.KIND: text(kind)}


def first_end(*, due_at: datetime, now: datetime) -> datetime:
    """Until when the body of a new task is kept."""
    return max(now, due_at) + LIFE


def _check_size(field: str, size: int, stored: Mapping[str, Any] | None, task_id: str) -> None:
    if stored is not None and len(stored["B"]) > MAX_STORED_BYTES:
        raise InputInvalid(
            field,
            f"is {size} bytes long; {MAX_STORED_BYTES} are the limit while RDQ_BODY_BUCKET is not set",
            hint="set RDQ_BODY_BUCKET, so that larger ones go to S3",
            task_id=task_id,
        )
