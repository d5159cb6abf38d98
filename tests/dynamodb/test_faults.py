"""Requests that get lost, refused or answered to nobody: a verb is carried out once, or says that
it may have been.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rdq_core.domain.ids import encode_id
from rdq_core.engine.events import Quiet
from rdq_core.errors import LeaseLost, StoreFailed, TaskNotFound
from rdq_core.runtime.wiring import connect
from rdq_core.stores.dynamodb.sender import MAX_SENDS
from rdq_core.testing.faults import Fault, FaultScript, LosesAnswer, LosesRequest, Rejects, Request
from tests.dynamodb import verbs
from tests.dynamodb.world import FAILURE, QUEUE, SHARDS, TABLES, TASK_ID, World, a_task

NOT_CARRIED_OUT: tuple[Fault, ...] = (
    LosesRequest(),
    Rejects("ProvisionedThroughputExceededException"),
    Rejects("TransactionConflictException"),
    Rejects("InternalServerError"),
)
PASSING: dict[str, tuple[Fault, ...]] = {
    "not carried out": NOT_CARRIED_OUT,
    "answer lost": (LosesAnswer(),),
    "answer lost twice": (LosesAnswer(), LosesAnswer()),
}


class FirstTries:
    """Meets every request's first tries with these faults in turn: what is sent again unchanged is
    the same request.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._tries: Counter[str] = Counter()

    def __call__(self, request: Request, send: Callable[[], Any]) -> Any:
        tried = self._tries[repr(request.params)]
        self._tries[repr(request.params)] += 1
        return self._faults[tried](request, send) if tried < len(self._faults) else send()


@pytest.mark.parametrize("faults", PASSING)
@pytest.mark.parametrize("prepare", verbs.EVERY, ids=verbs.named)
def test_faults_at_every_single_request_that_pass_change_nothing_in_the_end(
    world: World, prepare: verbs.Prepare, faults: str
) -> None:
    prepare(world)()
    expected = world.everything()
    act = prepare(world.again())
    with FaultScript(world.client) as script:
        script.add(FirstTries(PASSING[faults]), times=None)
        act()
    assert world.everything() == expected
    assert script.count() > len(PASSING[faults])


@pytest.mark.parametrize("prepare", verbs.EVERY, ids=verbs.named)
def test_a_process_that_dies_between_two_writes_leaves_the_task_whole(
    world: World, prepare: verbs.Prepare
) -> None:
    before, after, requests = _ends_of(world, prepare)
    for nth in range(1, requests + 1):
        act = prepare(world.again())
        with FaultScript(world.client) as faults:
            faults.lose_request(nth=nth, times=None)
            _let_fail(act)
        assert world.store.get(TASK_ID) in (before, after)
        assert len(list(world.store.dead(QUEUE, limit=9).items)) == (
            world.store.dead_entry(TASK_ID) is not None
        )


@pytest.mark.parametrize("prepare", verbs.EVERY, ids=verbs.named)
def test_a_verb_that_failed_at_any_request_can_be_asked_for_again(
    world: World, prepare: verbs.Prepare
) -> None:
    _, after, requests = _ends_of(world, prepare)
    for nth in range(1, requests + 1):
        act = prepare(world.again())
        with FaultScript(world.client) as faults:
            faults.lose_answer(nth=nth)
            faults.lose_request(nth=nth + 1, times=MAX_SENDS - 1)
            _let_fail(act)
        _let_fail(act)
        assert world.store.get(TASK_ID) == after


def _ends_of(world: World, prepare: verbs.Prepare) -> tuple[Any, Any, int]:
    act = prepare(world)
    before = world.store.get(TASK_ID)
    with FaultScript(world.client) as faults:
        act()
    return before, world.store.get(TASK_ID), faults.count()


def _let_fail(act: verbs.Act) -> None:
    with contextlib.suppress(StoreFailed, TaskNotFound):
        act()


def test_patience_ends_and_tells_that_the_write_may_have_happened(world: World) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.lose_answer("UpdateItem")
        faults.lose_request("UpdateItem", times=None)
        with pytest.raises(StoreFailed) as failed:
            world.store.release(claim, FAILURE, due_at=world.now)
    assert failed.value.may_have_happened
    assert faults.count() == MAX_SENDS


def test_patience_ends_and_tells_that_nothing_happened(world: World) -> None:
    with FaultScript(world.client) as faults:
        faults.reject("ThrottlingException", times=None)
        with pytest.raises(StoreFailed) as failed:
            world.submit()
    assert not failed.value.may_have_happened
    assert world.sleeper.slept == sorted(world.sleeper.slept)
    assert len(world.sleeper.slept) == MAX_SENDS - 1


def damages_answer(_request: Request, send: Callable[[], Any]) -> Any:
    """The request is carried out, and on its way back the answer is damaged, which its checksum
    shows.
    """
    answer, error = send()
    answer[0].headers["x-amz-crc32"] = "1"
    return answer, error


@pytest.mark.parametrize(
    "first", [LosesAnswer(), damages_answer], ids=["answer lost", "answer damaged"]
)
@pytest.mark.parametrize(
    "last", [LosesRequest(), Rejects("ThrottlingException")], ids=["not sent", "throttled"]
)
def test_what_became_of_tries_that_botocore_made_by_itself_is_known(
    world: World, first: Fault, last: Fault
) -> None:
    client = world.engine.client("dynamodb", attempts=2)
    parts = connect(client, TABLES, clock=world.clock, sleeper=world.sleeper, events=Quiet())
    with FaultScript(client) as faults:
        faults.add(first, "PutItem")
        faults.add(last, "PutItem", nth=2, times=None)
        with pytest.raises(StoreFailed) as failed:
            parts.store.submit(a_task(created_at=world.now), shards=SHARDS)
    assert world.store.get(TASK_ID) is not None
    assert failed.value.may_have_happened


def test_a_try_of_somebody_else_in_between_leaves_no_doubt(world: World) -> None:
    client, another = (world.engine.client("dynamodb", attempts=2) for _ in range(2))
    parts, others = (
        connect(each, TABLES, clock=world.clock, sleeper=world.sleeper, events=Quiet())
        for each in (client, another)
    )

    def submit_another() -> None:
        with FaultScript(another) as theirs:
            theirs.lose_answer("PutItem")
            others.store.submit(a_task(encode_id(8), created_at=world.now), shards=SHARDS)

    with FaultScript(client) as faults:
        faults.interleave(submit_another)
        faults.reject("ThrottlingException", times=None)
        with pytest.raises(StoreFailed) as failed:
            parts.store.submit(a_task(created_at=world.now), shards=SHARDS)
    assert not failed.value.may_have_happened


def test_our_own_heartbeat_is_told_from_a_lost_lease(world: World) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.lose_answer("UpdateItem")
        faults.interleave(
            lambda: world.store.cancel(claim.task.id, now=world.now, op_id="x", expires_at=None),
            at=2,
        )
        with pytest.raises(LeaseLost):
            world.store.heartbeat(claim, world.now + verbs.HOUR)
