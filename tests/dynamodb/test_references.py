"""References in DynamoDB: they live as long as their task, and a submit and a forget that meet
leave nothing behind.
"""

from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.ids import encode_id
from rdq_core.domain.lifecycle import NO_EDIT, Result
from rdq_core.domain.references import GRACE, TOMBSTONE_LIFE, Reference, ReferenceKind
from rdq_core.domain.task import Failure, Status
from rdq_core.errors import StoreFailed, TaskConflict
from rdq_core.stores.dynamodb.references import tombstone_key
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.billing import Bill
from tests.dynamodb.verbs import noise, seen_dead
from tests.dynamodb.world import LEASE, SHARDS, TABLES, TASK_ID, World, a_task
from tests.support.engines import Engine

DAY = timedelta(days=1)
RESULT = Result(content=b"done")
ANN = Reference(ReferenceKind.REQUESTED_BY, "ann@example.org")
ORDER = Reference(ReferenceKind.TARGET, "order:88213")
OF_BOTH: dict[str, Any] = {"target": ORDER.value, "requested_by": ANN.value}


def references(world: World) -> list[dict[str, Any]]:
    return [item for item in world.control() if item["sk"]["S"] != "tombstone"]


def ends(world: World) -> list[float | None]:
    """In how many days each reference ends, None for one that stays."""
    now = world.now.timestamp()
    return [
        (int(item["expires_at"]["N"]) - now) / DAY.total_seconds() if "expires_at" in item else None
        for item in references(world)
    ]


def submits_unfinished(world: World) -> None:
    """A submitter that dies after its row is written, before it can read the tombstone."""
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: world.store.forget(ORDER, now=world.now), "PutItem")
        faults.lose_request("GetItem", times=None)
        with pytest.raises(StoreFailed):
            world.submit(payload=noise(2000), **OF_BOTH)
    assert "T" in world.kinds()


# -- what is stored --------------------------------------------------------------------------------


def test_neither_a_key_nor_a_tombstone_says_who_was_meant(world: World) -> None:
    world.submit(**OF_BOTH)
    world.store.forget(ANN, now=world.now)
    world.store.forget(ORDER, now=world.now)
    (one, other) = world.control()
    assert "ann" not in str(one) + str(other)
    assert "88213" not in str(one) + str(other)
    assert {(int(item["expires_at"]["N"]) - world.now.timestamp()) for item in (one, other)} == {
        TOMBSTONE_LIFE.total_seconds()
    }


def test_a_refused_submit_leaves_no_reference(world: World) -> None:
    world.submit(**OF_BOTH)
    world.store.submit(a_task(target="order:2"), shards=SHARDS)
    with pytest.raises(TaskConflict):
        world.store.submit(a_task(queue="email", target="order:3"), shards=SHARDS)
    assert len(references(world)) == 2


def test_a_purge_removes_the_references(world: World) -> None:
    world.dead(**OF_BOTH)
    world.store.purge(seen_dead(world), now=world.now, op_id="op")
    assert references(world) == []


@pytest.mark.ministack
def test_a_reference_costs_one_unit_and_a_task_without_any_no_request(ministack: Engine) -> None:
    world = World(ministack)
    bill = Bill(world.client)
    world.submit(payload=b"x" * 300)
    assert (bill.units, bill.requests) == (2, ["PutItem"])
    bill.clear()
    world.submit(encode_id(8), payload=b"x" * 300, target="order:1")
    assert (bill.units, bill.requests) == (3, ["BatchWriteItem", "PutItem", "GetItem"])
    bill.clear()
    world.claim(TASK_ID)
    assert (bill.units, bill.requests[-1]) == (3, "UpdateItem")
    bill.clear()
    world.claim(encode_id(8))
    assert (bill.units, bill.requests[-2:]) == (3, ["UpdateItem", "GetItem"])


# -- as long as their task -------------------------------------------------------------------------


def test_a_reference_outlives_the_longest_wait(world: World) -> None:
    world.submit(next_attempt_at=world.now + 300 * DAY, **OF_BOTH)
    assert ends(world) == [360, 360]


@pytest.mark.parametrize("size", [10, 3000])
def test_a_task_that_is_dead_for_good_keeps_its_references_for_good(
    world: World, size: int
) -> None:
    world.dead(payload=noise(size), **OF_BOTH)
    assert ends(world) == [None, None]
    world.clock.advance(200 * DAY)
    world.store.redrive(seen_dead(world), NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    assert world.store.forget(ANN, now=world.now) == 1
    assert references(world) == []


def test_a_reference_is_renewed_before_its_row_is_kept_longer(world: World) -> None:
    claim = world.claimed(**OF_BOTH)
    world.store.complete(
        claim, world.succeeded(claim), RESULT, now=world.now, expires_at=world.now + 90 * DAY
    )
    assert ends(world) == [97, 97]


def test_a_reference_of_what_is_rescheduled_far_ahead_is_renewed(world: World) -> None:
    claim = world.claimed(**OF_BOTH)
    world.store.reschedule(
        claim, world.failed(claim), Failure("task_failed"), due_at=world.now + 100 * DAY
    )
    assert ends(world) == [160, 160]


def test_a_redrive_after_a_long_rest_renews_the_references(world: World) -> None:
    world.dead(expires_at=world.now + 60 * DAY, **OF_BOTH)
    world.clock.advance(50 * DAY)
    world.store.redrive(seen_dead(world), NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    assert ends(world) == [60, 60]


def test_references_of_work_that_nobody_claims_for_months_live_on(world: World) -> None:
    world.submit(**OF_BOTH)
    for _ in range(20):
        world.clock.advance(20 * DAY)
        world.store.renew(world.candidate(), now=world.now)
        assert all(end is not None and end >= 30 for end in ends(world))
    assert world.store.forget(ANN, now=world.now) == 1


def test_references_that_stay_for_good_meanwhile_are_given_no_end(world: World) -> None:
    claim = world.claimed(**OF_BOTH)
    world.clock.advance(50 * DAY)
    seen = world.candidate()
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: world.bury(claim), "UpdateItem", at=3)
        world.store.renew(seen, now=world.now)
    assert ends(world) == [None, None]
    assert "re" not in world.row()


def test_a_row_that_ttl_removed_takes_lasting_references_along(world: World) -> None:
    world.dead(**OF_BOTH)
    row = world.row()
    world.client.delete_item(
        TableName=TABLES.tasks, Key={"task_id": row["task_id"], "kind": row["kind"]}
    )
    world.store.clean_up({"dynamodb": {"OldImage": row}})
    assert references(world) == []


def test_in_ordinary_life_a_reference_is_not_touched_again(world: World) -> None:
    claim = world.claimed(**OF_BOTH)
    with FaultScript(world.client) as requests:
        world.store.complete(
            claim, world.succeeded(claim), RESULT, now=world.now, expires_at=world.now + 7 * DAY
        )
    assert requests.count() == 1


def test_keeping_a_missing_reference_makes_none(world: World) -> None:
    claim = world.claimed(**OF_BOTH)
    for item in references(world):
        world.client.delete_item(TableName=TABLES.control, Key={"pk": item["pk"], "sk": item["sk"]})
    world.bury(claim)
    assert references(world) == []


# -- a submit and a forget that meet ---------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", noise(3000)], ids=["inline", "outside"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_forget_between_any_two_requests_of_a_submit_leaves_nothing(
    anywhere: World, at: int, payload: bytes
) -> None:
    submit = a_task(payload=payload, **OF_BOTH)
    with FaultScript(anywhere.client) as faults:
        faults.interleave(
            lambda: anywhere.store.forget(ORDER, now=anywhere.now), at=at, when="after"
        )
        try:
            anywhere.store.submit(submit, shards=SHARDS)
        except TaskConflict:
            assert faults.count() >= at
    anywhere.store.forget(ORDER, now=anywhere.now)
    assert (anywhere.kinds(), anywhere.due()) == ([], [])


@pytest.mark.parametrize("at", range(1, 9))
def test_a_submit_between_any_two_requests_of_a_forget_is_forgotten_or_refused(
    world: World, at: int
) -> None:
    world.submit(encode_id(8), payload=noise(2000), **OF_BOTH)
    refused: list[TaskConflict] = []

    def submits() -> None:
        try:
            world.submit(payload=noise(2000), **OF_BOTH)
        except TaskConflict as conflict:
            refused.append(conflict)

    with FaultScript(world.client) as faults:
        faults.interleave(submits, at=at)
        world.store.forget(ORDER, now=world.now)
    assert bool(refused) == (at > 1)
    assert (world.kinds(), world.kinds(encode_id(8)), world.due()) == ([], [], [])


def test_a_row_whose_submitter_died_before_it_read_the_tombstone_goes_at_its_first_claim(
    anywhere: World,
) -> None:
    submits_unfinished(anywhere)
    assert anywhere.store.claim(anywhere.candidate(), anywhere.grant()) is None
    assert (anywhere.kinds(), references(anywhere)) == ([], [])


@pytest.mark.parametrize("key", [None, "customer-5"])
def test_that_the_tombstone_cannot_be_read_does_not_say_that_nothing_was_written(
    world: World, key: str | None
) -> None:
    with FaultScript(world.client) as faults:
        faults.lose_request(
            "GetItem", times=None, where=lambda request: "tombstone" in str(request.params)
        )
        with pytest.raises(StoreFailed) as submit:
            world.submit(**OF_BOTH, concurrency_key=key)
        (candidate,) = world.due()
        claims = world.store.claim if key is None else world.store.claim_keyed
        with pytest.raises(StoreFailed) as claim:
            claims(candidate, world.grant())
    assert (submit.value.may_have_happened, claim.value.may_have_happened) == (True, True)
    assert world.got().status is Status.IN_FLIGHT


def test_such_a_row_with_a_concurrency_key_gives_its_key_free(world: World) -> None:
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: world.store.forget(ORDER, now=world.now), "PutItem")
        faults.lose_request("GetItem", times=None)
        with pytest.raises(StoreFailed):
            world.submit(concurrency_key="ann", **OF_BOTH)
    assert world.store.claim_keyed(world.candidate(), world.grant()) is None
    assert [item["pk"]["S"][:4] for item in world.control()] == ["ref#"]


def test_such_a_row_is_found_by_whoever_takes_over_too(world: World) -> None:
    submits_unfinished(world)
    with FaultScript(world.client) as faults:
        faults.lose_request("GetItem", times=None)
        with pytest.raises(StoreFailed):
            world.store.claim(world.candidate(), world.grant())
    world.clock.advance(LEASE)
    assert world.store.lapsed(world.candidate(), now=world.now) is None
    assert world.kinds() == []


def test_such_a_row_is_found_by_a_forget_that_comes_later(world: World) -> None:
    submits_unfinished(world)
    assert world.store.forget(ANN, now=world.now) == 1
    assert world.kinds() == []


def test_a_task_that_dies_while_it_is_forgotten_leaves_no_entry(world: World) -> None:
    claim = world.claimed(**OF_BOTH)
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: world.bury(claim), "DeleteItem")
        assert world.store.forget(ORDER, now=world.now) == 1
    assert (world.kinds(), list(world.store.dead("payments.charge", limit=9).items)) == ([], [])


def test_a_task_that_is_sent_back_while_it_is_forgotten_is_forgotten(world: World) -> None:
    world.dead(**OF_BOTH)
    entry = seen_dead(world)
    with FaultScript(world.client) as faults:
        faults.interleave(
            lambda: world.store.redrive(entry, NO_EDIT, now=world.now, op_id="op", shards=SHARDS),
            "TransactWriteItems",
        )
        assert world.store.forget(ORDER, now=world.now) == 1
    assert world.kinds() == []


def test_a_new_task_under_the_id_of_one_that_is_being_forgotten_stays(world: World) -> None:
    world.submit(**OF_BOTH)

    def begins_anew() -> None:
        world.client.delete_item(
            TableName=TABLES.tasks, Key={"task_id": {"S": TASK_ID}, "kind": {"S": "T"}}
        )
        world.submit(payload=b"new")

    with FaultScript(world.client) as faults:
        faults.interleave(begins_anew, "DeleteItem")
        world.store.forget(ORDER, now=world.now)
    assert world.got().payload == b"new"


def test_a_forget_that_fails_at_any_request_is_finished_by_the_next(world: World) -> None:
    for k in range(1, 40):
        order = Reference(ReferenceKind.TARGET, f"order:{k}")
        ids = [encode_id(100 * k + place) for place in range(2)]
        world.submit(ids[0], payload=noise(3000), target=order.value)
        world.dead(ids[1], payload=noise(3000), target=order.value)
        with FaultScript(world.client) as faults:
            faults.lose_answer(nth=k)
            faults.lose_request(nth=k + 1, times=None)
            is_done = _try(lambda order=order: world.store.forget(order, now=world.now))
        world.clock.advance("2h")
        world.store.forget(order, now=world.now)
        assert [world.kinds(task_id) for task_id in ids] == [[], []], f"request {k}"
        assert references(world) == [], f"request {k}"
        if is_done:
            return
    raise AssertionError("a forget of two tasks takes more than 40 requests")


def test_an_unreadable_row_is_forgotten_by_what_can_be_read_of_it(world: World) -> None:
    world.submit(**OF_BOTH)
    row = {**world.row(), "v": {"N": "99"}}
    world.client.put_item(TableName=TABLES.tasks, Item=row)
    assert world.store.forget(ORDER, now=world.now) == 1
    assert world.kinds() == []


def test_the_tombstone_of_a_later_forget_stands(world: World) -> None:
    world.store.forget(ORDER, now=world.now + GRACE)
    world.store.forget(ORDER, now=world.now)
    (tombstone,) = world.control()
    assert int(tombstone["forgotten_at"]["N"]) == (world.now + GRACE).timestamp() * 1000
    assert tombstone["pk"] == tombstone_key(ORDER.digest)["pk"]


def test_a_reference_whose_row_may_be_yet_to_come_stays_for_an_hour(world: World) -> None:
    with FaultScript(world.client) as faults:
        faults.lose_request("PutItem", times=None)
        with pytest.raises(StoreFailed):
            world.submit(**OF_BOTH)
    assert (world.store.forget(ORDER, now=world.now), len(references(world))) == (0, 2)
    world.clock.advance("2h")
    assert (world.store.forget(ORDER, now=world.now), len(references(world))) == (0, 1)


def _try(forget: Any) -> bool:
    try:
        forget()
    except StoreFailed:
        return False
    return True
