"""Late writers and zombies between any two writes: their records never become history, and our own
are recognised.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.task import Status
from rdq_core.errors import LeaseLost, StoreFailed
from rdq_core.stores.dynamodb.sender import MAX_SENDS
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.verbs import HOUR, noise
from tests.dynamodb.world import FAILURE, TABLES, World

Settle = Callable[[World, Claim], None]


def _complete(world: World, claim: Claim) -> None:
    attempt = world.succeeded(claim)
    world.store.complete(
        claim, attempt, Result(content=noise(3000)), now=world.now, expires_at=world.now + HOUR
    )


def _reschedule(world: World, claim: Claim) -> None:
    world.store.reschedule(claim, world.failed(claim, worker="zombie"), FAILURE, due_at=world.now)


def _dead_letter(world: World, claim: Claim) -> None:
    world.store.dead_letter(
        claim,
        world.failed(claim, worker="zombie"),
        FAILURE,
        now=world.now,
        fingerprint="v1:z",
        expires_at=None,
    )


def _release(world: World, claim: Claim) -> None:
    world.store.release(claim, FAILURE, due_at=world.now)


SETTLING: tuple[Settle, ...] = (_complete, _reschedule, _dead_letter, _release)


def _reclaim(world: World) -> Claim:
    lapsed = world.lapse()
    claim = world.store.reclaim(lapsed, world.lost(lapsed), world.grant())
    assert claim is not None
    return claim


def _publishes(world: World, kinds: list[str]) -> bool:
    """Whether every record under the task is part of what it shows: nothing is left lying about."""
    return len([kind for kind in kinds if kind.startswith("A#")]) == sum(
        attempt.error is not None for attempt in world.got().attempts
    )


@pytest.mark.parametrize("settle", SETTLING)
def test_a_zombie_that_wakes_up_between_two_writes_of_its_own_changes_nothing(
    world: World, settle: Settle
) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        deciding = "TransactWriteItems" if settle is _dead_letter else "UpdateItem"
        faults.interleave(lambda: _reclaim(world), deciding)
        with pytest.raises(LeaseLost):
            settle(world, claim)
    task = world.got()
    assert (task.status, [attempt.worker for attempt in task.attempts]) == (
        Status.IN_FLIGHT,
        ["host:1"],
    )
    assert _publishes(world, world.kinds())
    assert not any(kind.startswith("R#") for kind in world.kinds())


@pytest.mark.parametrize("settle", SETTLING)
def test_a_zombie_long_after_its_reclaim_leaves_a_longer_history_alone(
    world: World, settle: Settle
) -> None:
    zombie = world.claimed()
    _reschedule(world, _reclaim(world))
    before = world.everything()
    with pytest.raises(LeaseLost):
        settle(world, zombie)
    assert world.everything() == before


@pytest.mark.parametrize("settle", SETTLING)
def test_a_settling_whose_answer_is_lost_is_ours_even_after_others_went_on(
    world: World, settle: Settle
) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        deciding = "TransactWriteItems" if settle is _dead_letter else "UpdateItem"
        faults.lose_answer(deciding)
        faults.interleave(lambda: _go_on(world), deciding, at=2)
        settle(world, claim)
    assert _publishes(world, world.kinds())


def _go_on(world: World) -> None:
    """What others do after a settling: whoever can claim the task, claims it."""
    if world.got().status is Status.DEAD:
        return
    for candidate in world.due():
        world.store.claim(candidate, world.grant())


def test_a_reschedule_is_ours_even_after_another_claim_was_settled_over_its_marks(
    world: World,
) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.lose_answer("UpdateItem")
        faults.interleave(lambda: _reschedule(world, world.claim()), "UpdateItem", at=2)
        _reschedule(world, claim)
    assert [attempt.attempt_no for attempt in world.got().attempts] == [1, 2]


def test_the_first_settling_of_a_claim_is_the_one_that_counts(world: World) -> None:
    claim = world.claimed()
    _reschedule(world, claim)
    before = world.everything()
    second_thoughts = world.failed(claim, worker="another worker")
    world.store.reschedule(claim, second_thoughts, FAILURE, due_at=world.now + HOUR)
    assert world.everything() == before
    for other in (_complete, _dead_letter, _release):
        with pytest.raises(LeaseLost):
            other(world, claim)
    assert world.everything() == before


def test_a_claim_whose_answer_is_lost_is_told_from_somebody_elses(world: World) -> None:
    world.submit()
    seen, grant = world.candidate(), world.grant("mine")
    with FaultScript(world.client) as faults:
        faults.lose_answer("UpdateItem")
        claim = world.store.claim(seen, grant)
    assert claim is not None
    assert (claim.token, world.store.claim(seen, world.grant("other"))) == ("mine", None)


def test_a_reclaim_that_came_second_leaves_no_record(world: World) -> None:
    world.claimed()
    lapsed = world.lapse()
    with FaultScript(world.client) as faults:
        faults.interleave(
            lambda: world.store.reclaim(lapsed, world.lost(lapsed), world.grant()), "UpdateItem"
        )
        assert world.store.reclaim(lapsed, world.lost(lapsed), world.grant()) is None
    assert len(world.got().attempts) == 1
    assert _publishes(world, world.kinds())


def test_a_reclaim_that_succeeded_unheard_and_was_settled_by_nobody_else_keeps_its_record(
    world: World,
) -> None:
    world.claimed()
    lapsed, first = world.lapse(), world.grant()
    with FaultScript(world.client) as faults:
        faults.lose_answer("UpdateItem")
        faults.interleave(lambda: _reclaim(world), "UpdateItem", at=2)
        assert world.store.reclaim(lapsed, world.lost(lapsed), first) is None
    assert [attempt.attempt_no for attempt in world.got().attempts] == [1, 2]


def test_a_heartbeat_that_arrives_between_a_reading_and_a_reclaim_saves_the_lease(
    world: World,
) -> None:
    claim = world.claimed()
    lapsed = world.lapse()
    world.store.heartbeat(claim, world.now + HOUR)
    assert world.store.reclaim(lapsed, world.lost(lapsed), world.grant()) is None
    assert (world.got().attempts, _publishes(world, world.kinds())) == ((), True)


def test_the_last_straw_counts_once_however_many_found_the_lease_lapsed(world: World) -> None:
    world.claimed()
    lapsed = world.lapse()

    def bury() -> bool:
        return world.store.dead_letter_lapsed(
            lapsed, world.lost(lapsed), FAILURE, world.grant(), fingerprint="v1:a", expires_at=None
        )

    assert [bury(), bury()] == [True, False]
    assert (len(world.got().attempts), _publishes(world, world.kinds())) == (1, True)


def test_clean_up_that_fails_does_not_hide_the_verdict(world: World) -> None:
    claim = world.claimed()
    _reclaim(world)
    with FaultScript(world.client) as faults:
        faults.reject("ThrottlingException", "BatchWriteItem", times=None)
        with pytest.raises(LeaseLost):
            _reschedule(world, claim)
    assert faults.count("BatchWriteItem") == MAX_SENDS
    assert len(world.got().attempts) == 1


@pytest.mark.parametrize("token", ["", "made-up", "é", "x" * 5000, None, 7])
def test_a_token_that_is_none_changes_nothing(world: World, token: object) -> None:
    forged = replace(world.claimed(), token=token)  # type: ignore[arg-type]
    before = world.everything()
    for settle in SETTLING:
        with pytest.raises(LeaseLost):
            settle(world, forged)
    with pytest.raises(LeaseLost):
        world.store.heartbeat(forged, world.now + HOUR)
    assert world.everything() == before


def test_records_left_by_a_crash_are_shown_to_nobody(world: World) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.lose_request("UpdateItem", times=None)
        with pytest.raises(StoreFailed):
            _reschedule(world, claim)
    assert world.got().attempts == ()
    _reschedule(world, _reclaim(world))
    assert [attempt.attempt_no for attempt in world.got().attempts] == [1, 2]
    assert len(world.items(TABLES.dlq)) == 3
