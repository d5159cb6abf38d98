"""Who is awake: of many who see new work one starts a sweep, and none while there is one."""

from typing import Any

import pytest

from rdq_core.engine.ports import Wakefulness
from rdq_core.runtime.system import SystemIds
from rdq_core.stores.dynamodb.awake import DynamoWakefulness
from rdq_core.stores.memory_awake import MemoryWakefulness
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.contract.awake import WakefulnessContract, books
from rdq_core.testing.contract.factories import QUEUE
from rdq_core.testing.faults import FaultScript
from tests.support.engines import Engine
from tests.support.stores import ALL_ENGINES, TABLES, dynamo_on


def on(client: Any) -> DynamoWakefulness:
    return DynamoWakefulness(client, TABLES, ids=SystemIds(), jitter=NoJitter(), sleeper=SkipsSleep(FrozenClock()))


@pytest.fixture(params=ALL_ENGINES)
def awake(request: pytest.FixtureRequest) -> Wakefulness:
    if request.param == "memory":
        return MemoryWakefulness()
    return on(dynamo_on(request.getfixturevalue(request.param)).engine.dynamodb)


class TestAwake(WakefulnessContract):
    pass


def test_who_falls_asleep_and_never_was_awake_leaves_nothing_behind(moto: Engine) -> None:
    client = dynamo_on(moto).engine.dynamodb
    on(client).fall_asleep(QUEUE)
    assert client.scan(TableName=TABLES.control)["Items"] == []


def test_a_booking_of_which_the_answer_was_lost_is_still_ones_own(moto: Engine) -> None:
    client = dynamo_on(moto).engine.dynamodb
    with FaultScript(client) as faults:
        faults.lose_answer("UpdateItem")
        assert books(on(client))
    assert not books(on(client))
