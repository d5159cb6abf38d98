"""The stores that the contract is held against."""

from typing import Any

import pytest

from rdq_core.engine.ports import TaskStore
from rdq_core.runtime.system import SystemIds
from rdq_core.stores.memory import MemoryStore
from rdq_core.testing.clock import FrozenClock
from tests.contract.bench import Bench
from tests.support.stores import ALL_ENGINES, EPOCH_OF_TESTS, Dynamo, dynamo_on


@pytest.fixture(params=ALL_ENGINES)
def bench(request: pytest.FixtureRequest) -> Bench:
    """An empty store: the one in memory, DynamoDB's on atomic moto, and DynamoDB's on ministack."""
    if request.param == "memory":
        return in_memory()
    return on_tables(dynamo_on(request.getfixturevalue(request.param)))


def in_memory() -> Bench:
    clock = FrozenClock(EPOCH_OF_TESTS)
    store = MemoryStore(clock=clock, ids=SystemIds())
    return Bench(store, clock, raw=store._kept.get)


def on_tables(dynamo: Dynamo, client: Any = None) -> Bench:
    def fellow() -> TaskStore:
        return dynamo.store()

    return Bench(dynamo.store(client), dynamo.clock, raw=dynamo.items_of, fellow=fellow)
