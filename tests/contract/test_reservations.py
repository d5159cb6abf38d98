"""Reservations: of many hosts that see new work one starts a sweep, and none while one runs."""

from typing import Any

import pytest

from rdq_core.engine.ports import Reservations
from rdq_core.runtime.system import SystemIds
from rdq_core.stores.dynamodb.coordination import DynamoReservations
from rdq_core.stores.memory_control import MemoryReservations
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.contract.factories import QUEUE
from rdq_core.testing.contract.reservations import ReservationsContract, books
from rdq_core.testing.faults import FaultScript
from tests.support.engines import Engine
from tests.support.stores import ALL_ENGINES, TABLES, dynamo_on


def on(client: Any) -> DynamoReservations:
    return DynamoReservations(
        client, TABLES, ids=SystemIds(), jitter=NoJitter(), sleeper=SkipsSleep(FrozenClock())
    )


@pytest.fixture(params=ALL_ENGINES)
def awake(request: pytest.FixtureRequest) -> Reservations:
    if request.param == "memory":
        return MemoryReservations()
    return on(dynamo_on(request.getfixturevalue(request.param)).engine.dynamodb)


class TestAwake(ReservationsContract):
    pass


def test_who_falls_asleep_and_never_was_awake_leaves_nothing_behind(moto: Engine) -> None:
    client = dynamo_on(moto).engine.dynamodb
    on(client).release(QUEUE)
    assert client.scan(TableName=TABLES.control)["Items"] == []


def test_a_booking_of_which_the_answer_was_lost_is_still_ones_own(moto: Engine) -> None:
    client = dynamo_on(moto).engine.dynamodb
    with FaultScript(client) as faults:
        faults.lose_answer("UpdateItem")
        assert books(on(client))
    assert not books(on(client))
