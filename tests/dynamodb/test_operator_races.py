"""Submits, cancels, redrives and purges of one task at once: each acts on what it has seen, and
knows its own doing.
"""

from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from rdq_core.domain.lifecycle import NO_EDIT, Edit
from rdq_core.domain.references import Reference, ReferenceKind
from rdq_core.domain.task import Status
from rdq_core.errors import StoreFailed, TaskConflict, TaskNotFound
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.verbs import HOUR, noise, seen_dead
from tests.dynamodb.world import FAILURE, SHARDS, TABLES, TASK_ID, World, a_failed_attempt, a_task

ORDER = Reference(ReferenceKind.TARGET, "order:88213")


def test_two_submits_of_one_id_store_one_task_and_leave_nothing_of_the_other(world: World) -> None:
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: world.submit(payload=noise(2000)), "PutItem", at=2)
        late = world.store.submit(a_task(payload=noise(3000)), shards=SHARDS)
    assert (late.created, late.task.payload) == (False, noise(2000))
    assert [kind[:2] for kind in world.kinds()] == ["B#", "T"]


def test_our_own_submit_is_recognised_even_when_the_task_has_been_claimed_since(
    world: World,
) -> None:
    with FaultScript(world.client) as faults:
        faults.lose_answer("PutItem")
        faults.interleave(world.claim, "PutItem", at=2)
        mine = world.store.submit(a_task(), shards=SHARDS)
    assert (mine.created, mine.task.status) == (True, Status.IN_FLIGHT)


def test_a_submit_that_may_yet_arrive_keeps_the_body_that_it_would_name(world: World) -> None:
    late: list[Any] = []
    with FaultScript(world.client) as faults:
        faults.lose_request("PutItem", nth=3, error=ReadTimeoutError)
        faults.interleave(lambda: world.submit(payload=noise(2000)), "PutItem", at=4)
        world.store.submit(
            a_task(payload=noise(3000), attempts=(a_failed_attempt(1, world.now, None),)),
            shards=SHARDS,
        )
        late += [request.params for request in faults.requests if request.operation == "PutItem"]
    world.client.delete_item(
        TableName=TABLES.tasks, Key={"task_id": {"S": TASK_ID}, "kind": {"S": "T"}}
    )
    world.client.put_item(**late[2])
    assert (world.got().payload, len(world.got().attempts)) == (noise(3000), 1)


def test_a_submit_over_another_queues_task_leaves_no_body(world: World) -> None:
    world.submit()
    with pytest.raises(TaskConflict):
        world.store.submit(a_task(queue="email", payload=noise(2000)), shards=SHARDS)
    assert world.kinds() == ["T"]


def test_a_cancel_whose_answer_is_lost_is_told_from_another_persons(world: World) -> None:
    world.submit()
    with FaultScript(world.client) as faults:
        faults.lose_answer("UpdateItem")
        world.store.cancel(TASK_ID, now=world.now, op_id="mine", expires_at=None)
    with pytest.raises(TaskConflict):
        world.store.cancel(TASK_ID, now=world.now, op_id="theirs", expires_at=None)


def test_a_redrive_acts_on_the_death_it_has_seen_and_no_other(world: World) -> None:
    world.dead()
    entry = seen_dead(world)
    world.clock.advance("1s")
    world.store.redrive(entry, NO_EDIT, now=world.now, op_id="first", shards=SHARDS)
    world.bury(world.claim())
    before = world.everything()
    with pytest.raises(TaskConflict):
        world.store.redrive(
            entry, Edit(payload=noise(3000)), now=world.now, op_id="second", shards=SHARDS
        )
    with pytest.raises(TaskConflict):
        world.store.purge(entry, now=world.now, op_id="third")
    assert world.everything() == before


def test_one_request_redrives_a_task_once_however_often_it_asks(world: World) -> None:
    world.dead()
    entry = seen_dead(world)
    world.store.redrive(entry, NO_EDIT, now=world.now, op_id="job", shards=SHARDS)
    world.bury(world.claim())  # at the very same millisecond, on a clock that stands still
    task = world.store.redrive(entry, NO_EDIT, now=world.now, op_id="job", shards=SHARDS)
    assert (task.status, task.redrive_count) == (Status.DEAD, 1)


def test_a_redrive_of_an_expired_task_finds_none(world: World) -> None:
    world.dead(expires_at=world.now + HOUR)
    entry, late = seen_dead(world), world.now + HOUR
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: None, "TransactWriteItems")
        with pytest.raises(TaskNotFound):
            world.store.redrive(entry, NO_EDIT, now=late, op_id="op", shards=SHARDS)


def test_a_redrive_lifts_the_end_of_the_row_in_the_same_write(world: World) -> None:
    world.dead(expires_at=world.now + HOUR)
    world.store.redrive(seen_dead(world), NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    assert "expires_at" not in world.row()
    world.clock.advance("2h")
    assert world.got().status is Status.PENDING


def test_a_purge_after_another_purge_has_found_nothing_to_do(world: World) -> None:
    world.dead()
    entry = seen_dead(world)
    with FaultScript(world.client) as faults:
        faults.interleave(
            lambda: world.store.purge(entry, now=world.now, op_id="a"), "TransactWriteItems"
        )
        world.store.purge(entry, now=world.now, op_id="b")
    assert world.kinds() == []


def test_a_task_read_while_it_is_purged_is_absent_and_not_corrupt(world: World) -> None:
    world.dead(payload=noise(5000))
    entry = seen_dead(world)
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: world.store.purge(entry, now=world.now, op_id="a"), at=2)
        assert world.store.get(TASK_ID) is None


def test_a_task_read_while_it_moves_on_is_read_again(world: World) -> None:
    world.dead(payload=noise(5000))
    entry = seen_dead(world)
    edit = Edit(payload=noise(6000))
    with FaultScript(world.client) as faults:
        faults.interleave(
            lambda: world.store.redrive(entry, edit, now=world.now, op_id="op", shards=SHARDS),
            "GetItem",
            at=2,
        )
        assert world.got().payload == noise(6000)


def test_a_submit_of_a_task_that_is_purged_while_it_is_answered_says_that_it_may_be_repeated(
    world: World,
) -> None:
    world.dead()
    entry = seen_dead(world)
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: world.store.purge(entry, now=world.now, op_id="a"), "Query")
        with pytest.raises(StoreFailed):
            world.submit()
    assert world.submit().status is Status.PENDING


def test_a_submit_of_a_task_that_moves_on_while_it_is_answered_gets_it_as_it_is_now(
    world: World,
) -> None:
    world.dead(payload=noise(5000))
    entry, edit = seen_dead(world), Edit(payload=noise(6000))
    with FaultScript(world.client) as faults:
        faults.interleave(
            lambda: world.store.redrive(entry, edit, now=world.now, op_id="op", shards=SHARDS),
            "Query",
            at=1,
        )
        faults.interleave(lambda: _remove_bodies_but(world, edit), "GetItem", at=1)
        assert world.submit().payload == noise(6000)


def _remove_bodies_but(world: World, edit: Edit) -> None:
    """What time to live does to the body that a redrive has replaced, at the earliest."""
    for (task_id, kind), item in world.items(TABLES.tasks).items():
        if kind.startswith("B#") and item["p"]["B"] != edit.payload:
            world.client.delete_item(
                TableName=TABLES.tasks, Key={"task_id": {"S": task_id}, "kind": {"S": kind}}
            )


def test_a_cancel_of_a_task_that_is_gone_before_it_is_answered_has_happened(world: World) -> None:
    world.store.reschedule(claim := world.claimed(), world.failed(claim), FAILURE, due_at=world.now)
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: _remove_all(world), "Query")
        task = world.store.cancel(TASK_ID, now=world.now, op_id="op", expires_at=world.now)
    assert task.status is Status.CANCELLED


@pytest.mark.parametrize("payload", [b"in the row", noise(5000)])
def test_a_cancel_lets_the_body_of_an_edit_that_came_in_between_live_as_long_as_the_task(
    world: World, payload: bytes
) -> None:
    claim, edit = world.claimed(payload=payload), Edit(payload=noise(6000))

    def dies_and_is_edited() -> None:
        world.bury(claim)
        world.store.redrive(seen_dead(world), edit, now=world.now, op_id="edit", shards=SHARDS)

    with FaultScript(world.client) as faults:
        faults.interleave(dies_and_is_edited, "GetItem", when="after")
        task = world.store.cancel(
            TASK_ID, now=world.now, op_id="op", expires_at=world.now + 3000 * HOUR
        )
    body = world.items(TABLES.tasks)[TASK_ID, f"B#{world.row()['b']['S']}"]
    assert (task.status, task.payload) == (Status.CANCELLED, edit.payload)
    assert int(body["expires_at"]["N"]) >= int(world.row()["expires_at"]["N"])


def test_a_cancel_gives_up_on_a_task_that_is_edited_each_time_it_looks(world: World) -> None:
    world.submit()

    def is_edited() -> None:
        world.bury(world.claim())
        world.clock.advance("1s")
        edit, op_id = Edit(payload=noise(6000 + world.now.second)), world.ids.nonce()
        world.store.redrive(seen_dead(world), edit, now=world.now, op_id=op_id, shards=SHARDS)

    with FaultScript(world.client) as faults:
        for at in range(1, 9):
            faults.interleave(
                is_edited,
                "UpdateItem",
                at=at,
                where=lambda request: ":in_flight" in str(request.params),
            )
        with pytest.raises(TaskConflict, match="again"):
            world.store.cancel(TASK_ID, now=world.now, op_id="op", expires_at=world.now + HOUR)


def test_a_repeated_cancel_leaves_the_task_alone_that_has_come_under_the_same_id(
    world: World,
) -> None:
    world.submit(target=ORDER.value)

    def is_forgotten_and_submitted_again() -> None:
        world.store.forget(ORDER, now=world.now)
        world.clock.advance("1m")
        world.submit(target=ORDER.value)

    with FaultScript(world.client) as faults:
        faults.lose_answer("UpdateItem")
        faults.interleave(is_forgotten_and_submitted_again, "UpdateItem", at=2)
        with pytest.raises(TaskNotFound):
            world.store.cancel(TASK_ID, now=world.now, op_id="op", expires_at=world.now + HOUR)
    assert world.got().status is Status.PENDING


def _remove_all(world: World) -> None:
    """What time to live and the clean-up after it do to a task whose retention is over."""
    for table in (TABLES.tasks, TABLES.dlq):
        for task_id, kind in world.items(table):
            world.client.delete_item(
                TableName=table, Key={"task_id": {"S": task_id}, "kind": {"S": kind}}
            )


def test_a_redrive_whose_answer_cannot_be_read_says_that_it_may_have_happened(world: World) -> None:
    world.dead()
    entry = seen_dead(world)
    with FaultScript(world.client) as faults:
        faults.lose_request("Query", times=None)
        with pytest.raises(StoreFailed) as failed:
            world.store.redrive(entry, NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    assert failed.value.may_have_happened
    assert world.got().status is Status.PENDING
