"""Sweeps over the index's shards: all that a queue has ever had, whatever one of them is in."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.ids import derive_id, encode_id
from rdq_core.domain.task import Status
from rdq_core.engine.sweep import SweepLimits
from rdq_core.handlers.registry import Registry
from rdq_core.runtime import wiring
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.stores.dynamodb.schema import queue_shard
from rdq_core.testing.clock import FrozenClock, SkipsSleep
from rdq_core.testing.embedded import Embedded, on_tables
from rdq_core.testing.faults import FaultScript, Rejects, Request
from tests.support.engines import Engine

QUEUE = "billing"


@pytest.fixture
def local(moto: Engine, monkeypatch: pytest.MonkeyPatch) -> Embedded:
    # The store's pauses before it tries again are no part of this.
    monkeypatch.setattr(wiring, "SystemSleeper", lambda: SkipsSleep(FrozenClock()))
    return on_tables(moto.dynamodb, {QUEUE: {"index_shards": 4}})


class Ran:
    """A handler that remembers what it was given, and does something else at one of its calls."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.registry = Registry(queues=[QUEUE])
        self.registry.register("charge", self.charge)
        self.at: dict[int, Any] = {}

    def charge(self, payload: bytes) -> None:
        self.payloads.append(payload)
        self.at.pop(len(self.payloads), lambda: None)()


def submitted(local: Embedded, numbers: range) -> list[bytes]:
    for number in numbers:
        local.rdq.submit(QUEUE, "charge", str(number).encode(), key=f"order-{number}")
    return [str(number).encode() for number in numbers]


def shards(local: Embedded, number: int) -> None:
    local.configure(QUEUE, {"index_shards": number})
    local.advance("2s")


def is_of_shard(shard: int) -> Any:
    partition = {"S": queue_shard(QUEUE, shard)}

    def asks(request: Request) -> bool:
        values: dict[str, Any] = request.params.get("ExpressionAttributeValues", {})
        return bool(values.get(":queue_shard") == partition)

    return asks


def test_tasks_lie_evenly_in_the_shards(local: Embedded) -> None:
    submitted(local, range(200))
    rows = local.client.scan(TableName=local.tables.tasks)["Items"]
    counts = Counter(row["queue_shard"]["S"] for row in rows)
    assert set(counts) == {queue_shard(QUEUE, shard) for shard in range(4)}
    assert min(counts.values()) > 200 / 4 / 2


@pytest.mark.parametrize(("first", "then"), [(8, 2), (2, 8), (1, 30)])
def test_a_changed_number_of_shards_loses_nothing(local: Embedded, first: int, then: int) -> None:
    ran = Ran()
    shards(local, first)
    expected = submitted(local, range(20))
    shards(local, then)
    expected += submitted(local, range(20, 40))
    local.drain(ran.registry)
    assert sorted(ran.payloads) == sorted(expected)


def test_the_number_may_go_up_and_down_while_a_sweep_is_under_way(local: Embedded) -> None:
    ran = Ran()
    expected = submitted(local, range(30))

    def change(number: int, numbers: range) -> None:
        local.configure(QUEUE, {"index_shards": number})
        expected.extend(submitted(local, numbers))

    ran.at = {5: lambda: change(9, range(30, 40)), 20: lambda: change(1, range(40, 50))}
    local.drain(ran.registry, horizon="5s")
    assert sorted(ran.payloads) == sorted(expected)


def test_dead_tasks_of_every_shard_are_listed_counted_and_sent_back_after_the_number_went_down(
    local: Embedded,
) -> None:
    registry = Registry(queues=[QUEUE])
    local.configure(QUEUE, {"index_shards": 8, "retry": {"max_attempts": 1}})
    submitted(local, range(16))

    def charge(payload: bytes) -> None:
        raise ConnectionError(payload)

    registry.register("charge", charge)
    local.drain(registry)
    shards(local, 1)
    store = local.parts.store
    entries = store.dead(QUEUE, limit=100).items
    assert (len(entries), store.counts(QUEUE).dead) == (16, 16)
    redriver = local.parts.redriver()
    for entry in entries:
        redriver.redrive(entry, op_id="op")
    ran = Ran()
    local.drain(ran.registry)
    assert len(ran.payloads) == 16


def test_one_throttled_shard_does_not_stop_the_others(local: Embedded) -> None:
    ran = Ran()
    submitted(local, range(40))
    with FaultScript(local.client) as faults:
        faults.reject(
            "ProvisionedThroughputExceededException", "Query", times=None, where=is_of_shard(2)
        )
        local.drain(ran.registry)
    assert 20 <= len(ran.payloads) < 40
    local.advance("5s")
    local.drain(ran.registry)
    assert len(set(ran.payloads)) == len(ran.payloads) == 40


def test_a_thousand_unreadable_rows_at_a_shards_head_do_not_stop_it(local: Embedded) -> None:
    shards(local, 1)
    submitted(local, range(1))
    (row,) = local.client.scan(TableName=local.tables.tasks)["Items"]
    told: Counter[str] = Counter()
    local.parts.listen(lambda error: told.update([type(error).__name__]))
    damaged = {**row, "v": {"N": "7"}}
    ids = [encode_id(number) for number in range(1000)]
    for first in range(0, 1000, 25):
        puts = [
            {"PutRequest": {"Item": {**damaged, "task_id": {"S": each}}}}
            for each in ids[first : first + 25]
        ]
        local.client.batch_write_item(RequestItems={local.tables.tasks: puts})
    local.advance("1m")
    submitted(local, range(1, 6))
    ran = Ran()
    sweeper = build_sweeper(local.parts, ran.registry, serves=[QUEUE], worker="test:1")
    with FaultScript(local.client) as faults:
        # What the engine would answer as well, in a hundredth of the time.
        refusal = Rejects("ConditionalCheckFailedException", item=damaged)
        faults.add(
            refusal,
            "UpdateItem",
            times=None,
            where=lambda request: request.params["Key"]["task_id"]["S"] in ids,
        )
        sweeper.sweep(SweepLimits(horizon=timedelta(0), linger=timedelta(0)))
    assert len(ran.payloads) == 6
    assert told == {"CorruptItem": 1000}


def test_a_task_is_found_where_it_was_put_however_often_the_number_changed(local: Embedded) -> None:
    for number in (3, 7, 2, 5):
        shards(local, number)
        submitted(local, range(number * 10, number * 10 + 3))
    ran = Ran()
    local.drain(ran.registry)
    assert len(ran.payloads) == 12
    assert local.rdq.get(derive_id(QUEUE, "order-30")).status is Status.SUCCEEDED
