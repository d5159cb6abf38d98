"""Bodies live as long as their task: renewed exactly where the rule asks for it, and never
shortened.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from rdq_core.domain.lifecycle import NO_EDIT, Edit, Result
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.values import from_seconds
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.verbs import noise, seen_dead
from tests.dynamodb.world import FAILURE, SHARDS, TABLES, TASK_ID, World

DAY = timedelta(days=1)
BODY: dict[str, Any] = {"payload": noise(3000)}


def _body(world: World) -> Any:
    ref = world.row()[Attr.BODY_REF]["S"]
    return world.items(TABLES.tasks)[TASK_ID, f"B#{ref}"]


def _end(world: World) -> datetime | None:
    """The body's end, which the row must know (or know an earlier one)."""
    end = _body(world).get(Attr.EXPIRES_AT)
    remembered = world.row().get(Attr.BODY_ENDS_AT)
    assert remembered == end
    return None if end is None else from_seconds(int(end["N"]))


@pytest.mark.parametrize("days", [0, 10, 300])
def test_a_new_body_ends_sixty_days_after_its_task_is_due(world: World, days: int) -> None:
    world.submit(next_attempt_at=world.now + days * DAY, **BODY)
    assert _end(world) == world.now + (days + 60) * DAY


def test_in_ordinary_life_no_body_is_renewed(world: World) -> None:
    world.submit(**BODY)
    first = _end(world)
    for _ in range(3):
        claim = world.claim()
        world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now + DAY)
        world.clock.advance("1d")
    claim = world.claim()
    world.store.complete(
        claim, world.succeeded(claim), Result(), now=world.now, expires_at=world.now + DAY
    )
    assert _end(world) == first


def test_a_retry_far_ahead_renews_the_body_first(world: World) -> None:
    claim = world.claimed(**BODY)
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now + 31 * DAY)
    assert _end(world) == world.now + 91 * DAY


@pytest.mark.parametrize(("retention", "expected"), [(53, 60), (54, 61), (365, 372)])
def test_a_body_outlives_its_row_by_a_week(world: World, retention: int, expected: int) -> None:
    world.dead(expires_at=world.now + retention * DAY, **BODY)
    assert _end(world) == world.now + expected * DAY


def test_the_body_of_a_task_that_stays_for_ever_has_no_end(world: World) -> None:
    world.dead(**BODY)
    assert _end(world) is None
    world.store.redrive(seen_dead(world), NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    claim = world.claim()
    world.store.complete(
        claim, world.succeeded(claim), Result(), now=world.now, expires_at=world.now + DAY
    )
    assert _end(world) is None


def test_work_overdue_for_months_has_its_body_renewed_before_it_is_claimed(world: World) -> None:
    world.submit(**BODY)
    world.clock.advance("19d")
    world.store.release(world.claim(), FAILURE, due_at=world.now)
    world.clock.advance("40d")
    claim = world.claim()
    assert world.store.load(claim).payload == BODY["payload"]
    assert _end(world) == claim.lease_expires_at + 60 * DAY


def test_a_redrive_of_a_task_long_dead_renews_its_body(world: World) -> None:
    world.dead(expires_at=world.now + 50 * DAY, **BODY)
    world.clock.advance("45d")
    world.store.redrive(seen_dead(world), NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    assert _end(world) == world.now + 60 * DAY


def test_an_edited_body_replaces_one_without_an_end_and_leaves_one_with_an_end_to_ttl(
    world: World,
) -> None:
    world.dead(**BODY)
    world.store.redrive(
        seen_dead(world), Edit(payload=noise(4000)), now=world.now, op_id="a", shards=SHARDS
    )
    assert sum(kind.startswith("B#") for kind in world.kinds()) == 1
    world.bury(world.claim(), expires_at=world.now + DAY)
    world.store.redrive(
        seen_dead(world), Edit(payload=noise(5000)), now=world.now, op_id="b", shards=SHARDS
    )
    assert sum(kind.startswith("B#") for kind in world.kinds()) == 2
    assert (world.got().payload, _end(world)) == (noise(5000), world.now + 60 * DAY)


def test_a_renewal_that_crashes_before_its_write_leaves_a_longer_life_and_no_shorter_one(
    world: World,
) -> None:
    claim = world.claimed(**BODY)
    far, farther = world.now + 40 * DAY, world.now + 50 * DAY
    with FaultScript(world.client) as faults:
        faults.lose_request("PutItem", times=None)
        with pytest.raises(Exception, match="PutItem"):
            world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=farther)
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=far)
    assert int(_body(world)[Attr.EXPIRES_AT]["N"]) == (farther + 60 * DAY).timestamp()


def test_the_renewal_of_a_missing_body_makes_none(world: World) -> None:
    claim = world.claimed(**BODY)
    world.client.delete_item(
        TableName=TABLES.tasks, Key={"task_id": {"S": TASK_ID}, "kind": _body(world)["kind"]}
    )
    world.bury(claim, expires_at=None)
    assert not any(kind.startswith("B#") for kind in world.kinds())


def test_a_large_result_ends_a_week_after_its_row(world: World) -> None:
    claim = world.claimed()
    end = world.now + DAY
    world.store.complete(
        claim, world.succeeded(claim), Result(content=noise(3000)), now=world.now, expires_at=end
    )
    result = world.items(TABLES.tasks)[TASK_ID, f"R#{claim.claim_id}"]
    assert from_seconds(int(result[Attr.EXPIRES_AT]["N"])) == end + 7 * DAY
