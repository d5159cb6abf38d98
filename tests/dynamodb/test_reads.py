"""Reading a DLQ of 50,000 entries: in memory that doesn't grow with it, and with counts that say
what they are.
"""

import sys
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.times import EPOCH
from rdq_core.ops.dead_letters import DeadLetters, entries_of
from rdq_core.ops.orders import Operation, Order
from rdq_core.ops.preview import preview
from rdq_core.ops.selection import DeadLetterFilter, Selection
from rdq_core.stores.dynamodb.dead_letters import entry_item
from rdq_core.stores.dynamodb.reading import MOST_COUNTED
from rdq_core.stores.dynamodb.schema import DEAD_INDEX
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.stores.memory_control import MemoryQueues
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.embedded import in_memory
from tests.dynamodb.world import QUEUE, SHARDS, TABLES, CountedIds

ENTRY = entry_item(
    DeadEntry(
        task_id="0" * 26,
        queue=QUEUE,
        handler_ref="charge",
        handler_version=None,
        dead_at=EPOCH,
        created_at=EPOCH,
        code="task_failed",
        type="TimeoutError",
        message="no answer within five seconds",
        fingerprint="v1:0",
        attempts=3,
        redrive_count=0,
        payload_size=10,
    ),
    life="n1",
    partition="-#00",
    expires_at=None,
)
A_FEW_PAGES = 60_000
"""Blocks of Python's memory: an entry takes some thirty of them, so that 50,000 would take 25 times
as many.
"""
_PAGE_BYTES = 1_000_000
_ENTRY_BYTES = 400


@dataclass
class Crowded:
    """A client whose index has so many entries in each shard, made as they are asked for: no engine
    could hold them.
    """

    dead: int
    due: int = 0
    largest: int = 0
    most_blocks: int = 0

    def query(self, **request: Any) -> Any:
        """As DynamoDB answers: never more than the limit, nor than a megabyte."""
        self.most_blocks = max(self.most_blocks, sys.getallocatedblocks())
        number = self.dead if request["IndexName"] == DEAD_INDEX else self.due
        start = request.get("ExclusiveStartKey", {}).get("task_id", {}).get("S")
        first = 0 if start is None else 1 + int(start[-6:])
        last = min(
            first + request.get("Limit", number), first + _PAGE_BYTES // _ENTRY_BYTES, number
        )
        shard = request["ExpressionAttributeValues"][":queue_shard"]["S"]
        counts = request.get("Select") == "COUNT"
        items = (
            []
            if counts
            else [self._item(place, shard, request["IndexName"]) for place in range(first, last)]
        )
        self.largest = max(self.largest, len(items))
        answer: dict[str, Any] = {"Items": items, "Count": last - first}
        if last < number:
            answer["LastEvaluatedKey"] = {"task_id": {"S": f"{last - 1:026d}"}}
        return answer

    def _item(self, place: int, partition: str, index: str) -> Any:
        if index != DEAD_INDEX:
            return {"status": {"S": "PENDING"}, "due_at": {"N": str(place)}}
        told = {
            "task_id": {"S": f"{place:026d}"},
            "queue_shard": {"S": partition},
            "dead_at": {"N": str(1_000_000 + place)},
            "fp": {"S": f"v1:{place % 7}"},
        }
        return {**ENTRY, **told}


def store_on(client: Any) -> DynamoTaskStore:
    clock = FrozenClock()
    return DynamoTaskStore(
        client,
        TABLES,
        clock=clock,
        ids=CountedIds(),
        jitter=NoJitter(),
        sleeper=SkipsSleep(clock),
        shards_ever=lambda _: SHARDS,
    )


def dead_letters_on(client: Any) -> DeadLetters:
    return DeadLetters(replace(in_memory({QUEUE: {}}).parts, store=store_on(client)))


@pytest.mark.parametrize(
    ("filters", "number"),
    [
        (DeadLetterFilter(), 50_000),
        (DeadLetterFilter(group="v1:3"), 7_144),
        (DeadLetterFilter(type="no"), 0),
    ],
)
def test_fifty_thousand_dead_tasks_are_listed_page_by_page_in_the_memory_of_a_few_pages(
    filters: DeadLetterFilter, number: int
) -> None:
    client = Crowded(dead=50_000 // SHARDS)
    dead_letters, listed, last, cursor = dead_letters_on(client), 0, EPOCH, None
    before = sys.getallocatedblocks()
    while True:
        page = dead_letters.entries(QUEUE, filters, page_size=500, cursor=cursor)
        assert all(entry.dead_at >= last for entry in page.items)
        listed, last = listed + len(page.items), page.items[-1].dead_at if page.items else last
        cursor = page.next_cursor
        if cursor is None:
            break
    assert listed == number
    assert client.most_blocks - before < A_FEW_PAGES
    assert client.largest <= 500


def test_fifty_thousand_dead_tasks_are_previewed_in_the_memory_of_a_few_pages() -> None:
    client, clock = Crowded(dead=50_000 // SHARDS), FrozenClock()
    queues = MemoryQueues(clock=clock)
    queues.put_declared(QUEUE, {}, {}, expected_revision=0)
    order = Order(operation=Operation.REDRIVE, selection=Selection(all=True))
    before = sys.getallocatedblocks()
    seen = preview(
        entries_of(store_on(client), QUEUE), order, queues.settings(QUEUE), cutoff=clock.now()
    )
    assert client.most_blocks - before < A_FEW_PAGES
    assert (seen.selected, seen.write_units) == (50_000, 550_000)


def test_fifty_thousand_dead_tasks_are_grouped_in_the_memory_of_a_few_pages() -> None:
    client = Crowded(dead=50_000 // SHARDS)
    dead_letters = dead_letters_on(client)

    before = sys.getallocatedblocks()
    groups = dead_letters.groups(QUEUE)

    assert client.most_blocks - before < A_FEW_PAGES
    assert (sum(group.count for group in groups), len(groups)) == (50_000, 7)
    assert client.largest <= 100


def test_a_page_reads_no_more_of_a_shard_than_it_may_show() -> None:
    client = Crowded(dead=50_000 // SHARDS)
    page = store_on(client).dead(QUEUE, limit=20)
    assert (len(page.items), client.largest) == (20, 20)
    assert page.next is not None


@pytest.mark.parametrize("in_each", [0, 10, (MOST_COUNTED - 1) // SHARDS])
def test_a_count_that_reached_the_end_says_that_it_is_exact(in_each: int) -> None:
    counts = store_on(Crowded(dead=in_each, due=in_each)).counts(QUEUE)
    assert (counts.dead, counts.pending, counts.exact) == (SHARDS * in_each, SHARDS * in_each, True)


@pytest.mark.parametrize(
    "crowded", [{"dead": 50_000 // SHARDS}, {"dead": 0, "due": 50_000 // SHARDS}]
)
def test_a_count_of_fifty_thousand_stops_in_the_memory_of_a_few_pages_and_says_that_there_are_more(
    crowded: dict[str, int],
) -> None:
    client = Crowded(**crowded)
    before = sys.getallocatedblocks()
    counts = store_on(client).counts(QUEUE)
    assert client.most_blocks - before < A_FEW_PAGES
    assert not counts.exact
    assert MOST_COUNTED <= counts.dead + counts.pending < MOST_COUNTED + 10
