"""The stores that the contract is held against."""

from dataclasses import replace
from typing import Any

import pytest

from rdq_core.runtime.system import SystemIds
from rdq_core.stores.memory import MemoryStore
from rdq_core.testing.clock import FrozenClock
from rdq_core.testing.contract.bench import Bench
from tests.contract.stage import Stage
from tests.support.stores import ALL_ENGINES, EPOCH_OF_TESTS, Dynamo, dynamo_on


@pytest.fixture(params=ALL_ENGINES)
def bench(request: pytest.FixtureRequest) -> Bench:
    """An empty store: the one in memory, and DynamoDB's on the strict double, on atomic moto and on
    ministack.
    """
    if request.param == "memory":
        return in_memory()
    return on_tables(dynamo_on(request.getfixturevalue(request.param)))


@pytest.fixture
def stage(on_dynamodb: Dynamo) -> Stage:
    """A DynamoDB store whose requests can be disturbed, on each engine: moto, which carries a
    repeated transaction out again, and on ministack, which knows it by its token.
    """
    return stage_on(on_dynamodb)


@pytest.fixture(params=[pytest.param("ministack", marks=pytest.mark.ministack)])
def quick_stage(request: pytest.FixtureRequest) -> Stage:
    """The same on ministack alone, for long series: moto copies all its tables for each
    transaction.
    """
    return stage_on(dynamo_on(request.getfixturevalue(request.param)))


def stage_on(dynamo: Dynamo) -> Stage:
    client = dynamo.engine.dynamodb
    return Stage(client, on_tables(dynamo, client), on_tables(dynamo))


def in_memory() -> Bench:
    clock = FrozenClock(EPOCH_OF_TESTS)
    store = MemoryStore(clock=clock, ids=SystemIds())
    return Bench(store, clock, raw=store._kept.get)


def on_tables(dynamo: Dynamo, client: Any = None) -> Bench:
    looker = dynamo.engine.dynamodb
    dynamo = replace(dynamo, shards_ever=lambda _queue: made.shards)

    def raw(task_id: str) -> object:
        items = dynamo.items_of(task_id, looker)
        for kind, body in items.items():
            if kind.startswith("B#"):
                # Whoever is about to write first lets the body live long enough. That it lives
                # longer, though the write is refused, is the one trace that a loser leaves.
                body.pop("expires_at", None)
        return items

    # moto copies all its tables for each transaction.
    many = 60 if dynamo.engine.name == "moto" else 250
    made = Bench(dynamo.store(client), dynamo.clock, raw=raw, fellow=dynamo.store, many=many)
    return made
