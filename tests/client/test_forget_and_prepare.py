"""`Rdq`: ten thousand submits, transactions where the store has none, and forgetting a target or
requester.
"""

from datetime import timedelta

import pytest

from rdq_core import NewTask, Receipt
from rdq_core.engine.events import EventName
from rdq_core.engine.prepared import Prepared
from rdq_core.errors import InputInvalid, TaskConflict, TaskNotFound, Unavailable
from rdq_core.testing.embedded import embedded
from tests.engine.world import QUEUE, World


@pytest.mark.slow
def test_ten_thousand_tasks_are_submitted_once_and_found_again() -> None:
    world, seen = World(), list[int]()
    tasks = [NewTask(QUEUE, "charge", number, key=f"order-{number}") for number in range(10_000)]
    answers = world.rdq.submit_many(tasks, on_progress=seen.append)
    assert [answer.created for answer in answers if isinstance(answer, Receipt)] == [True] * 10_000
    assert seen == list(range(1, 10_001))
    again = world.rdq.submit_many(iter(tasks))
    assert [answer.id for answer in again if isinstance(answer, Receipt)] == [
        answer.id for answer in answers if isinstance(answer, Receipt) and answer.created
    ]
    assert world.store.counts(QUEUE).pending == 10_000


def test_each_new_task_of_many_emits_one_event() -> None:
    world = World()
    world.rdq.submit_many([NewTask(QUEUE, "charge", 1, key=key) for key in ("a", "b", "a")])
    assert world.told.names() == [EventName.SUBMITTED] * 2


def test_a_store_without_transactions_says_so() -> None:
    with pytest.raises(Unavailable, match="transaction"):
        World().rdq.prepare(QUEUE, "charge", 1)


def test_a_prepared_submit_is_checked_before_anything_is_stored() -> None:
    with embedded({QUEUE: {}}) as local:
        for fields in ({"payload": {1}}, {"payload": 1, "target": ""}, {"payload": 1, "id": "x"}):
            with pytest.raises(InputInvalid):
                local.rdq.prepare(QUEUE, "charge", **fields)
        assert local.parts.store.counts(QUEUE).pending == 0


def test_a_prepared_submit_is_the_submit_of_its_key() -> None:
    with embedded({QUEUE: {}}) as local:
        prepared: Prepared = local.rdq.prepare(
            QUEUE, "charge", {"order": 7}, key="order-7", delay="1h"
        )
        local.client.transact_write_items(TransactItems=[*prepared.items])
        task = local.rdq.get(queue=QUEUE, key="order-7")
        assert (task.id, task.payload, task.next_attempt_at) == (
            prepared.id,
            b'{"order":7}',
            local.clock.now() + timedelta(hours=1),
        )
        assert local.rdq.submit(QUEUE, "charge", 1, key="order-7") == Receipt(
            prepared.id, QUEUE, created=False
        )


def test_a_target_or_a_requester_is_forgotten() -> None:
    world = World()
    tasks = [
        world.submit(target="order:1"),
        world.submit(requested_by="ann"),
        world.submit(target="order:2"),
    ]
    assert (world.rdq.forget(target="order:1"), world.rdq.forget(requested_by="ann")) == (1, 1)
    for task_id in tasks[:2]:
        with pytest.raises(TaskNotFound):
            world.rdq.get(task_id)
    assert world.rdq.get(tasks[2]).target == "order:2"


def test_new_business_with_a_forgotten_target_waits_for_two_seconds() -> None:
    world = World()
    world.rdq.forget(target="order:1")
    with pytest.raises(TaskConflict) as refusal:
        world.submit(target="order:1")
    assert refusal.value.hint is not None
    world.clock.advance("2001ms")
    assert world.task(world.submit(target="order:1")).target == "order:1"


def test_exactly_one_thing_is_forgotten_at_a_time() -> None:
    rdq = World().rdq
    for given in (
        {},
        {"target": "order:1", "requested_by": "ann"},
        {"target": ""},
        {"requested_by": "x" * 257},
    ):
        with pytest.raises(InputInvalid):
            rdq.forget(**given)
