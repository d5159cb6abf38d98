"""The engine on DynamoDB's store: what a sweep asks for, request by request."""

import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from rdq_core.client.rdq import Rdq
from rdq_core.domain.task import Status
from rdq_core.engine.sweep import SweepLimits
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.stores.dynamodb.schema import definitions
from rdq_core.testing.faults import FaultScript
from tests.engine.test_outcomes import ERRORS
from tests.engine.world import NOW_ONLY, QUEUE, World, raises
from tests.support.engines import Engine
from tests.support.stores import TABLES, Dynamo

READS: Final = {"Query", "GetItem", "BatchGetItem"}
FOLLOWERS: Final = 1_000
PAGE: Final = 100


class WorldOnTables(World):
    """The engine's test world on atomic moto. `requests` stands between its store and the
    tables.
    """

    def __init__(self, engine: Engine, **config: Any) -> None:
        super().__init__(**config)
        client = engine.dynamodb
        for definition in definitions(TABLES).values():
            client.create_table(**definition)
        self.requests = FaultScript(client)
        dynamo = Dynamo(
            engine, self.clock, shards_ever=lambda queue: self.queues.settings(queue).shards_ever
        )
        self.parts = replace(self.parts, store=dynamo.store(client))
        self.rdq = Rdq(parts=self.parts)


def test_a_thousand_followers_of_one_key_cost_another_a_read_a_page_and_no_write(
    moto: Engine,
) -> None:
    world = WorldOnTables(moto, dispatch={"concurrency": 10, "batch_size": PAGE})
    until_b, b_started = Counter[str](), threading.Event()

    def handler(key: str) -> None:
        if key == "a":
            b_started.wait(60)
        else:
            until_b.update(request.operation for request in world.requests.requests)
            b_started.set()

    world.handler(handler)
    for _ in range(1 + FOLLOWERS):
        world.submit("a", concurrency_key="a")
    world.clock.advance("1s")
    world.submit("b", concurrency_key="b")
    with world.requests:
        report = world.sweep(SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=2))
    assert report.completed == 2
    assert until_b["Query"] <= FOLLOWERS // PAGE + 1
    assert {name: count for name, count in until_b.items() if name not in READS} == {
        "TransactWriteItems": 2
    }


def test_followers_of_another_host_s_key_are_passed_over_without_a_request_each(
    moto: Engine,
) -> None:
    world = WorldOnTables(moto, dispatch={"concurrency": 10, "batch_size": PAGE})
    gate, a_runs = threading.Event(), threading.Event()

    def handler(key: str) -> None:
        if key == "a":
            a_runs.set()
            gate.wait(60)

    world.handler(handler)
    for _ in range(PAGE):
        world.submit("a", concurrency_key="a")
    world.submit("b", concurrency_key="b")
    elsewhere = build_sweeper(world.parts, world.registry, serves=[QUEUE], worker="other:1")
    limits = SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=1)
    other = threading.Thread(target=elsewhere.sweep, args=(limits,))
    other.start()
    assert a_runs.wait(30)
    with world.requests:
        report = world.sweep()
    gate.set()
    other.join(30)
    writes = Counter(
        request.operation for request in world.requests.requests if request.operation not in READS
    )
    assert report.completed == 1
    assert writes["TransactWriteItems"] <= 2 + 1  # b's claim, and one that finds a's key busy
    assert world.requests.count() <= 20


def test_an_idle_sweep_writes_nothing_even_where_a_rate_limit_is_set(moto: Engine) -> None:
    world = WorldOnTables(moto, dispatch={"rate_limit": "10/s"}, index_shards=4)
    with world.requests:
        world.sweep(SweepLimits(horizon=None, deadline=world.clock.now() + timedelta(seconds=60)))
    assert {request.operation for request in world.requests.requests} == {"Query"}
    assert world.requests.count() == 4 * 60


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_text_is_stored_as_it_may_be(moto: Engine, name: str) -> None:
    world = WorldOnTables(moto, retry={"max_attempts": 1})
    world.handler(raises(ERRORS[name]))
    task_id = world.submit()
    assert world.sweep(NOW_ONLY).dead_lettered == 1
    task = world.task(task_id)
    assert task.status is Status.DEAD
    assert task.attempts[0].error is not None
    assert "\x00" not in (task.attempts[0].error.message or "")
    assert world.told.errors == []
