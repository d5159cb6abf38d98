"""What is in the DLQ: one entry, or all of a queue's in the order of their deaths.

Entries lie in several shards of an index. A page merges their heads and remembers, shard by shard,
the last entry that it gave out, so that entries which come or go meanwhile make no other one be
skipped or repeated.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.task import Status
from rdq_core.engine.ports import Page
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.access import Access, key
from rdq_core.stores.dynamodb.records import read_entry
from rdq_core.stores.dynamodb.schema import DEAD_INDEX, ENTRY, Attr, queue_shard
from rdq_core.stores.dynamodb.values import Item, Reader, text


@dataclass(frozen=True, slots=True)
class _Head:
    """A shard's next entries, as one query gave them. `more` tells whether there are others behind."""

    shard: int
    items: list[Item]
    more: bool


class DeadLetters:
    """The verbs that look into the DLQ."""

    _access: Access
    _shards_ever: Callable[[str], int]

    def dead_entry(self, task_id: str) -> DeadEntry | None:
        """See `TaskStore.dead_entry`."""
        row = self._access.living(task_id, self._access.clock.now())
        if row is None or row.task.status is not Status.DEAD:
            return None
        item = self._access.sender.get(self._access.tables.dlq, key(task_id, ENTRY))
        # An entry of an earlier life is one that TTL hasn't removed yet.
        return (
            read_entry(item) if item is not None and item.get(Attr.LIFE) == text(row.life) else None
        )

    def bears_mark(self, task_id: str, op_id: str) -> bool:
        """See `TaskStore.bears_mark`."""
        row = self._access.living(task_id, self._access.clock.now())
        return row is not None and row.item.get(Attr.OP_ID) == text(op_id)

    def dead(self, queue: str, *, limit: int, after: Any = None) -> Page[DeadEntry]:
        """See `TaskStore.dead`. Oldest death first.

        Expired and unreadable entries are passed over, so a page may have fewer entries than
        `limit`, even none, and still not be the last. `next` is plain JSON data.
        """
        last: dict[str, list[Any]] = dict(after or {})
        heads = [self._head(queue, shard, limit, last) for shard in range(self._shards_ever(queue))]
        entries: list[DeadEntry] = []
        now = self._access.clock.now()
        for taken, (shard, item) in enumerate(_merged(heads)):
            if taken == limit:
                return Page(entries, last)
            last[str(shard)] = [item[Attr.DEAD_AT]["N"], item[Attr.TASK_ID]["S"]]
            entry = _readable(item, now)
            if entry is not None:
                entries.append(entry)
        return Page(entries, last if any(head.more for head in heads) else None)

    def _head(self, queue: str, shard: int, limit: int, last: Mapping[str, Any]) -> _Head:
        partition = text(queue_shard(queue, shard))
        request: dict[str, Any] = {
            "TableName": self._access.tables.dlq,
            "IndexName": DEAD_INDEX,
            "KeyConditionExpression": "#queue_shard = :queue_shard",
            "Limit": limit,
        }
        if str(shard) in last:
            dead_at, task_id = last[str(shard)]
            request["ExclusiveStartKey"] = {
                **key(task_id, ENTRY),
                Attr.QUEUE_SHARD: partition,
                Attr.DEAD_AT: {"N": dead_at},
            }
        answer = self._access.sender.query(request, {":queue_shard": partition})
        return _Head(shard, answer["Items"], "LastEvaluatedKey" in answer)


def _merged(heads: list[_Head]) -> Iterator[tuple[int, Item]]:
    """The shards' entries in the order of their deaths; each shard's own order, which its next page
    goes by, is kept.

    It ends where a shard that has more entries behind runs out: a later one of another shard might
    come after those.
    """
    waiting = [(_died(head.items[0]), head.shard, 0, head) for head in heads if head.items]
    heapq.heapify(waiting)
    while waiting:
        _, shard, place, head = heapq.heappop(waiting)
        yield shard, head.items[place]
        if place + 1 < len(head.items):
            heapq.heappush(waiting, (_died(head.items[place + 1]), shard, place + 1, head))
        elif head.more:
            return


def _died(item: Item) -> Decimal:
    # An entry that was edited by hand may have any number there, and must not keep the others from
    # being listed.
    return Decimal(item[Attr.DEAD_AT]["N"])


def _readable(item: Item, now: datetime) -> DeadEntry | None:
    try:
        ends_at = Reader(item, "a dead-letter entry").maybe_seconds(Attr.EXPIRES_AT)
        return None if ends_at is not None and ends_at <= now else read_entry(item)
    except CorruptItem:
        return None
