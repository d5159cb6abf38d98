"""Reading whole tasks, and counting them. A row whose retention has ended counts as absent, removed
by TTL or not.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.task import Status, Task, failure_of
from rdq_core.engine.ports import QueueCounts
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.access import Access, after_a_write
from rdq_core.stores.dynamodb.bodies import unpacked
from rdq_core.stores.dynamodb.expressions import CLAUSES, HAS_NOT_EXPIRED, values_at
from rdq_core.stores.dynamodb.schema import DEAD_INDEX, DUE_INDEX, Attr, queue_shard
from rdq_core.stores.dynamodb.state_row import StateRow
from rdq_core.stores.dynamodb.values import Reader, Value, text

_READS: Final = 3
"""How often a task is read that changes while it is read."""

MOST_COUNTED: Final = 10_000
"""Where counting stops: an exact count of a million entries costs more than it is worth."""


# -- a whole task ----------------------------------------------------------------------------------


def read_task(access: Access, row: StateRow) -> Task | None:
    """The whole task of a row, read again if the row changes meanwhile; None when it has gone then.

    Raises CorruptItem when a part is missing although the row has not changed.
    """
    for _ in range(_READS):
        try:
            return _assemble(access, row)
        except CorruptItem:
            # A part may be missing because the row has changed since it was read.
            again = access.unexpired(row.task.id, access.clock.now())
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


def read_own_write(access: Access, row: StateRow) -> Task:
    """The whole task of a row that we have just written; without its history if it has gone
    since.
    """
    with after_a_write():
        return read_task(access, row) or row.task


def _assemble(access: Access, row: StateRow) -> Task:
    """The task with what it carries, its history and its result. Raises CorruptItem."""
    history = access.history.published(row)
    failure = row.task.failure
    if failure is not None:
        failure = failure_of(failure.code, history[-1] if history else None)
    return replace(
        row.task,
        **access.bodies.fields(row),
        **_result_fields(access, row, history),
        failure=failure,
    )


def _result_fields(access: Access, row: StateRow, history: list[Attempt]) -> dict[str, Any]:
    success = row.success
    if success is None:
        return {"attempts": tuple(history)}
    reader = access.bodies.result_of(row)
    if row.result_ref is not None:
        unknown = reader.json_of(Attr.UNKNOWN, unpacked(reader, Attr.UNKNOWN))
        success = replace(success, worker=reader.maybe_text(Attr.WORKER), unknown=unknown or {})
    return {
        "attempts": (*history, success),
        "result": unpacked(reader, Attr.RESULT),
        "result_content_type": reader.maybe_text(Attr.RESULT_TYPE),
    }


# -- the verbs -------------------------------------------------------------------------------------


class ReadVerbs:
    """`get` and `counts` of `TaskStore`."""

    def __init__(self, access: Access, shards_ever: Callable[[str], int]) -> None:
        self._access = access
        self._shards_ever = shards_ever

    def get(self, task_id: str) -> Task | None:
        """See `TaskStore.get`."""
        row = self._access.unexpired(task_id, self._access.clock.now())
        return None if row is None else read_task(self._access, row)

    def counts(self, queue: str) -> QueueCounts:
        """See `TaskStore.counts`."""
        now = self._access.clock.now()
        due, dead = _Count(), _Count()
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

    def _count_due(self, count: "_Count", partition: str) -> None:
        request = {
            "TableName": self._access.tables.tasks,
            "IndexName": DUE_INDEX,
            "ProjectionExpression": f"{Attr.STATUS.alias}, {Attr.DUE_AT.alias}",
        }
        for page in self._pages(request, partition, {}, count):
            for item in page["Items"]:
                count.add(item)

    def _count_dead(self, count: "_Count", partition: str, now: datetime) -> None:
        request = {
            "TableName": self._access.tables.dlq,
            "IndexName": DEAD_INDEX,
            # Billed like a read of the entries, but none of them is sent.
            "Select": "COUNT",
            # TTL removes entries days after their end; until then the index has them.
            "FilterExpression": CLAUSES[HAS_NOT_EXPIRED],
        }
        for page in self._pages(request, partition, values_at(now), count):
            count.total += page["Count"]

    def _pages(
        self, request: dict[str, Any], partition: str, values: Mapping[str, Value], count: "_Count"
    ) -> Iterator[dict[str, Any]]:
        request = {**request, "KeyConditionExpression": "#queue_shard = :queue_shard"}
        values = {**values, ":queue_shard": text(partition)}
        while True:
            # One entry of each shard is read at least: the oldest due time is always known.
            page = self._access.sender.query({**request, "Limit": max(count.room, 1)}, values)
            yield page
            if "LastEvaluatedKey" not in page:
                return
            if count.room <= 0:
                count.exact = False
                return
            request = {**request, "ExclusiveStartKey": page["LastEvaluatedKey"]}


@dataclass(slots=True)
class _Count:
    """A count in progress, over the shards of a queue."""

    total: int = 0
    pending: int = 0
    oldest: datetime | None = None
    exact: bool = True

    @property
    def room(self) -> int:
        """How many more entries are counted."""
        return MOST_COUNTED - self.total

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an entry of the due index."""
        self.total += 1
        if entry.get(Attr.STATUS, {}).get("S") != Status.PENDING:
            return
        self.pending += 1
        # An entry whose due time was edited by hand into nonsense counts, but is not the oldest.
        with contextlib.suppress(CorruptItem):
            due_at = Reader(entry, "an index entry").moment(Attr.DUE_AT)
            self.oldest = due_at if self.oldest is None else min(self.oldest, due_at)
