"""Hand-overs: a sweep hands a claim to a function, which adopts it or never does."""

from datetime import timedelta

import pytest

from rdq_core.config.settings import Host
from rdq_core.domain.attempt import Code, Outcome
from rdq_core.domain.lease import Grant
from rdq_core.domain.task import Status
from rdq_core.engine.events import EventName
from tests.engine.world import World
from tests.support.functions import refused

LEASE = timedelta(seconds=60)


@pytest.fixture
def world() -> World:
    world = World(
        handlers={"charge": {"function": "charge-fn", "invocation": "async"}},
        retry={"max_attempts": 3},
    )
    world.host = Host.SWEEPER
    return world


def lapse_and_wait(world: World, task_id: str) -> None:
    """The lease ends, and is noticed; then the task is due again, and handed over anew."""
    world.clock.advance(LEASE)
    world.sweep()
    due_at = world.task(task_id).next_attempt_at
    if due_at is not None:
        world.clock.advance(due_at - world.clock.now())
        world.sweep()


def test_the_function_gets_the_claims_reference_and_nothing_else(world: World) -> None:
    task_id = world.submit("s3cret order")
    report = world.sweep()
    (request,) = world.functions.requests
    claim = world.functions.event()["rdq"]["claim"]
    assert request["InvocationType"] == "Event"
    assert (claim["task_id"], sorted(claim)) == (task_id, ["queue", "task_id", "token"])
    assert b"s3cret" not in request["Payload"]
    assert (report.handed_over, world.task(task_id).status) == (1, Status.IN_FLIGHT)


def test_what_it_never_adopts_is_released_four_times_and_then_spends_budget(world: World) -> None:
    task_id = world.submit()
    world.sweep()
    spent = []
    for _ in range(6):
        lapse_and_wait(world, task_id)
        spent.append(world.task(task_id).attempt_count)
    assert spent == [0, 0, 0, 0, 1, 2]
    assert {attempt.outcome for attempt in world.attempts(task_id)} == {Outcome.LEASE_EXPIRED}
    world.clock.advance(LEASE)
    world.sweep()
    assert world.task(task_id).status is Status.DEAD


def test_each_release_waits_longer_and_has_the_code_of_an_unreached_function(world: World) -> None:
    task_id = world.submit()
    world.sweep()
    waits = []
    for _ in range(3):
        world.clock.advance(LEASE)
        assert world.sweep().released == 1
        assert world.told.last(EventName.RELEASED).code == Code.UNAVAILABLE
        due_at = world.task(task_id).next_attempt_at
        assert due_at is not None
        waits.append(due_at - world.clock.now())
        world.clock.advance(waits[-1])
        world.sweep()
    assert waits == [timedelta(seconds=1), timedelta(seconds=2), timedelta(seconds=4)]


def test_one_that_was_adopted_and_then_killed_is_an_attempt(world: World) -> None:
    task_id = world.submit()
    world.sweep()
    now = world.clock.now()
    token = world.functions.event()["rdq"]["claim"]["token"]
    world.store.adopt(task_id, token, Grant(token="mine", now=now, lease_expires_at=now + LEASE))
    lapse_and_wait(world, task_id)
    assert [attempt.outcome for attempt in world.attempts(task_id)] == [Outcome.LEASE_EXPIRED]


def test_throttled_hand_overs_burn_no_budget_and_do_not_count_as_lapses(world: World) -> None:
    task_id = world.submit()
    world.functions.always("charge-fn", refused("TooManyRequestsException"))
    for _ in range(20):
        world.sweep()
        world.clock.advance("5m")
    world.functions.always("charge-fn", b"")
    world.sweep()
    for _ in range(4):
        lapse_and_wait(world, task_id)
    assert world.task(task_id).attempt_count == 0


def test_a_function_that_is_not_there_is_unroutable(world: World) -> None:
    world.functions.answer(refused("ResourceNotFoundException"))
    task_id = world.submit()
    world.sweep()
    assert (world.task(task_id).status, world.error(task_id).type) == (
        Status.DEAD,
        "rdq.Unroutable",
    )
