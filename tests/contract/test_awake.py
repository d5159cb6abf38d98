"""Who is awake: of many who see new work one starts a sweep, and none while there is one."""

from datetime import timedelta
from typing import Any

import pytest

from rdq_core.engine.ports import Wakefulness
from rdq_core.runtime.system import SystemIds
from rdq_core.stores.dynamodb.awake import DynamoWakefulness
from rdq_core.stores.memory_awake import MemoryWakefulness
from rdq_core.testing.clock import NOON, FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.contract.bench import side_by_side
from rdq_core.testing.faults import FaultScript
from tests.support.engines import Engine
from tests.support.stores import ALL_ENGINES, TABLES, dynamo_on

QUEUE = "billing"
TWO = timedelta(seconds=2)


def on(client: Any) -> DynamoWakefulness:
    return DynamoWakefulness(client, TABLES, ids=SystemIds(), jitter=NoJitter(), sleeper=SkipsSleep(FrozenClock()))


@pytest.fixture(params=ALL_ENGINES)
def awake(request: pytest.FixtureRequest) -> Wakefulness:
    if request.param == "memory":
        return MemoryWakefulness()
    return on(dynamo_on(request.getfixturevalue(request.param)).engine.dynamodb)


def books(awake: Wakefulness, seconds: float = 0, queue: str = QUEUE) -> bool:
    now = NOON + timedelta(seconds=seconds)
    return awake.book(queue, now=now, until=now + TWO)


def test_of_many_who_would_start_a_sweep_one_does(awake: Wakefulness) -> None:
    assert sorted(map(str, side_by_side([lambda: books(awake)] * 4))) == ["False", "False", "False", "True"]
    assert [books(awake, 1.9), books(awake, 2)] == [False, True]


def test_while_one_is_awake_nobody_starts_another(awake: Wakefulness) -> None:
    awake.stay_awake(QUEUE, until=NOON + TWO)
    assert [books(awake), books(awake, 1), books(awake, 2)] == [False, False, True]


def test_when_it_falls_asleep_the_next_one_starts_a_sweep(awake: Wakefulness) -> None:
    awake.stay_awake(QUEUE, until=NOON + TWO)
    awake.fall_asleep(QUEUE)
    assert books(awake)


def test_nobody_takes_back_that_another_one_is_awake_for_longer(awake: Wakefulness) -> None:
    awake.stay_awake(QUEUE, until=NOON + TWO)
    awake.stay_awake(QUEUE, until=NOON + timedelta(seconds=1))
    assert not books(awake, 1.5)


def test_queues_are_awake_by_themselves(awake: Wakefulness) -> None:
    assert [books(awake), books(awake, queue="mail"), books(awake)] == [True, True, False]


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
