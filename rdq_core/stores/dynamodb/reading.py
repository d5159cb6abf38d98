"""Reading whole tasks and counting them. Retention that is over counts as absence, removed or not."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.task import Status, Task, failure_of
from rdq_core.engine.ports import QueueCounts
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb import contents
from rdq_core.stores.dynamodb.access import Access, after_a_write, values_at
from rdq_core.stores.dynamodb.expressions import CLAUSES, HAS_NOT_EXPIRED
from rdq_core.stores.dynamodb.items import StateRow
from rdq_core.stores.dynamodb.schema import DEAD_INDEX, DUE_INDEX, Attr, queue_shard
from rdq_core.stores.dynamodb.values import Reader, Value, text

_READS: Final = 3
"""How often a task is read that changes while it is read."""

MOST_COUNTED: Final = 10_000
"""Counting stops there: an exact count of a million costs more than anybody wants to know."""


def assembled(access: Access, row: StateRow) -> Task:
    """The whole task of a row: with what it carries, its history, and its result. Raises
    CorruptItem.
    """
    history = access.history.published(row)
    failure = row.task.failure
    return replace(
        row.task,
        **access.bodies.fields(row),
        **_result(access, row, history),
        failure=None
        if failure is None
        else failure_of(failure.code, history[-1] if history else None),
    )


def whole(access: Access, row: StateRow) -> Task | None:
    """The whole task of a row that may move on while it is read: as it is then, None when it is
    gone by then.

    Raises CorruptItem when a part is missing although the row has not changed.
    """
    for _ in range(_READS):
        try:
            return assembled(access, row)
        except CorruptItem:
            # A part that is missing may have gone with a change of the row since it was read.
            again = access.living(row.task.id, access.clock.now())
            if again is None:
                return None
            if again.item == row.item:
                raise
            row = again
    raise CorruptItem(
        f"task {row.task.id} changed each time it was read",
        task_id=row.task.id,
        hint="read it again",
    )


def as_written(access: Access, row: StateRow) -> Task:
    """The whole task of a row that we have just written; without its history when it has gone
    since.
    """
    with after_a_write():
        return whole(access, row) or row.task


def _result(access: Access, row: StateRow, history: list[Attempt]) -> dict[str, Any]:
    success = row.success
    if success is None:
        return {"attempts": tuple(history)}
    reader = access.bodies.result_of(row)
    if row.result_ref is not None:
        unknown = reader.json_of(Attr.UNKNOWN, contents.unpacked(reader, Attr.UNKNOWN))
        success = replace(success, worker=reader.maybe_text(Attr.WORKER), unknown=unknown or {})
    return {
        "attempts": (*history, success),
        "result": contents.unpacked(reader, Attr.RESULT),
        "result_content_type": reader.maybe_text(Attr.RESULT_TYPE),
    }


class Reading:
    """The verbs that change nothing."""

    _access: Access
    _shards_ever: Callable[[str], int]

    def get(self, task_id: str) -> Task | None:
        """See `TaskStore.get`."""
        row = self._access.living(task_id, self._access.clock.now())
        return None if row is None else whole(self._access, row)

    def counts(self, queue: str) -> QueueCounts:
        """See `TaskStore.counts`."""
        now = self._access.clock.now()
        due, dead = _Tally(), _Tally()
        for shard in range(self._shards_ever(queue)):
            self._count_due(due, queue_shard(queue, shard))
            self._count_dead(dead, queue_shard(queue, shard), now)
        return QueueCounts(
            pending=due.pending,
            in_flight=due.total - due.pending,
            dead=dead.total,
            oldest_due_at=due.oldest,
            exact=due.exact and dead.exact,
        )

    def _count_due(self, tally: "_Tally", partition: str) -> None:
        request = {
            "TableName": self._access.tables.tasks,
            "IndexName": DUE_INDEX,
            "ProjectionExpression": f"{Attr.STATUS.alias}, {Attr.DUE_AT.alias}",
        }
        for page in self._pages(request, partition, {}, tally):
            for item in page["Items"]:
                tally.add(item)

    def _count_dead(self, tally: "_Tally", partition: str, now: datetime) -> None:
        request = {
            "TableName": self._access.tables.dlq,
            "IndexName": DEAD_INDEX,
            "Select": "COUNT",
            "FilterExpression": CLAUSES[HAS_NOT_EXPIRED],
        }
        for page in self._pages(request, partition, values_at(now), tally):
            tally.total += page["Count"]

    def _pages(
        self, request: dict[str, Any], partition: str, values: Mapping[str, Value], tally: "_Tally"
    ) -> Iterator[dict[str, Any]]:
        request = {**request, "KeyConditionExpression": "#queue_shard = :queue_shard"}
        values = {**values, ":queue_shard": text(partition)}
        while True:
            # At least one entry of each shard is looked at, so that the oldest is known however
            # many there are.
            page = self._access.sender.query({**request, "Limit": max(tally.room, 1)}, values)
            yield page
            if "LastEvaluatedKey" not in page:
                return
            if tally.room <= 0:
                tally.exact = False
                return
            request = {**request, "ExclusiveStartKey": page["LastEvaluatedKey"]}


@dataclass(slots=True)
class _Tally:
    """A count under way, over the shards of a queue."""

    total: int = 0
    pending: int = 0
    oldest: datetime | None = None
    exact: bool = True

    @property
    def room(self) -> int:
        """How many more are counted."""
        return MOST_COUNTED - self.total

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an entry of the due index."""
        self.total += 1
        if entry.get(Attr.STATUS, {}).get("S") != Status.PENDING:
            return
        self.pending += 1
        # One that was edited by hand into no time at all is pending, and keeps nobody from
        # counting.
        with contextlib.suppress(CorruptItem):
            due_at = Reader(entry, "an index entry").moment(Attr.DUE_AT)
            self.oldest = due_at if self.oldest is None else min(self.oldest, due_at)
