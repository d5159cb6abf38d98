"""What a removed row leaves behind goes with it: the handler of the stream's records."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from rdq_core.domain.lifecycle import Result
from rdq_core.domain.limits import MIB
from rdq_core.errors import LeaseLost
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.test_claim_check import Checked
from tests.dynamodb.verbs import HOUR, noise, seen_dead
from tests.dynamodb.world import FAILURE, TABLES, TASK_ID, World

STATE_KEY: dict[str, Any] = {"task_id": {"S": TASK_ID}, "kind": {"S": "T"}}


def removed(row: Any, new: Any = None) -> dict[str, Any]:
    """The record that the stream has of a row that TTL, a purge or a person removed, or that
    another one replaced.
    """
    images = {"OldImage": row} if new is None else {"OldImage": row, "NewImage": new}
    return {
        "eventName": "REMOVE" if new is None else "MODIFY",
        "dynamodb": {"Keys": {name: row[name] for name in STATE_KEY}, **images},
    }


def expire(world: World) -> Any:
    """TTL removes the row and the entry, in its own time; the row as it was."""
    row = world.row()
    world.client.delete_item(TableName=TABLES.tasks, Key=STATE_KEY)
    world.client.delete_item(TableName=TABLES.dlq, Key={**STATE_KEY, "kind": {"S": "D"}})
    return row


def dead_after_failures(world: World, *, expires_at: datetime | None = None, **fields: Any) -> None:
    claim = world.claimed(**fields)
    for _ in range(3):
        world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
        claim = world.claim()
    world.bury(claim, expires_at=expires_at)


def test_a_row_that_was_removed_takes_its_history_and_its_body_along(anywhere: World) -> None:
    dead_after_failures(anywhere, payload=noise(3000))
    row = expire(anywhere)
    assert len(anywhere.kinds()) == 5

    anywhere.store.clean_up(removed(row))

    assert anywhere.kinds() == []


def test_a_body_with_an_end_is_left_to_ttl_which_is_free(world: World) -> None:
    claim = world.claimed(payload=noise(3000))
    result = Result(content=noise(3000))
    world.store.complete(
        claim, world.succeeded(claim), result, now=world.now, expires_at=world.now + HOUR
    )
    row = expire(world)

    world.store.clean_up(removed(row))

    assert [kind[:2] for kind in world.kinds()] == ["B#", "R#"]
    assert all("expires_at" in item for item in world.items(TABLES.tasks).values())


def test_a_result_kept_for_good_goes_with_its_row(world: World) -> None:
    claim = world.claimed()
    world.store.complete(
        claim, world.succeeded(claim), Result(content=noise(3000)), now=world.now, expires_at=None
    )
    world.store.clean_up(removed(expire(world)))
    assert world.kinds() == []


def test_a_new_life_under_the_same_id_takes_the_old_ones_history_away_and_keeps_its_own(
    world: World,
) -> None:
    claim = world.claimed(payload=noise(3000))
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    world.bury(world.claim(), expires_at=world.now + HOUR)
    old = world.row()
    world.clock.advance("1h")
    again = world.claimed(payload=noise(4000))
    world.store.reschedule(again, world.failed(again), FAILURE, due_at=world.now)

    world.store.clean_up(removed(old, world.row()))

    assert [kind.partition("#")[0] for kind in world.kinds()] == [
        "A",
        "B",
        "B",
        "D",
        "T",
    ]  # the old B and D have an end
    assert (world.got().payload, len(world.got().attempts)) == (noise(4000), 1)


@pytest.mark.parametrize("times", [1, 3])
def test_records_that_come_late_and_again_take_nothing_of_a_live_life(
    world: World, times: int
) -> None:
    dead_after_failures(world, payload=noise(3000))
    old = expire(world)
    claim = world.claimed(payload=noise(5000))
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    for _ in range(times):
        world.store.clean_up(removed(old))
    assert (world.got().payload, len(world.got().attempts)) == (noise(5000), 1)
    assert [kind.partition("#")[0] for kind in world.kinds()] == ["A", "B", "T"]


def test_other_records_change_nothing(world: World) -> None:
    dead_after_failures(world, payload=noise(3000))
    row, before = world.row(), world.everything()
    records: dict[str, dict[str, Any]] = {
        "an ordinary change": removed(row, {**row, "n": {"N": "7"}}),
        "a removal of what is there": removed(row),
        "an insertion": {"eventName": "INSERT", "dynamodb": {"NewImage": row}},
        "a record without images": {"eventName": "REMOVE", "dynamodb": {"Keys": STATE_KEY}},
        "a body without content in S3": removed({**STATE_KEY, "kind": {"S": "B#x"}}),
        "an empty record": {},
    }
    for case, record in records.items():
        world.store.clean_up(record)
        assert world.everything() == before, case


def test_a_row_that_cannot_be_read_keeps_everything(world: World) -> None:
    dead_after_failures(world, payload=noise(3000))
    old = world.row()
    world.client.put_item(
        TableName=TABLES.tasks, Item={**old, "v": {"N": "2"}, "lf": {"S": "another"}}
    )
    before = world.everything()
    world.store.clean_up(removed(old))
    assert world.everything() == before


def test_what_a_zombie_put_after_its_row_was_removed_goes_as_well(world: World) -> None:
    claim = world.claimed()
    old = expire(world)
    with pytest.raises(LeaseLost):
        world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    assert len(world.kinds()) == 1
    world.store.clean_up(removed(old))
    assert world.kinds() == []


def test_content_in_s3_that_stays_for_good_goes_with_its_row(anywhere: World) -> None:
    checked = Checked(anywhere)
    anywhere.dead(payload=noise(MIB))
    assert [key.split("/")[0] for key in checked.stored()] == ["90d", "keep"]
    anywhere.store.clean_up(removed(expire(anywhere)))
    assert [key.split("/")[0] for key in checked.stored()] == [
        "90d"
    ]  # which its lifecycle rule removes
    assert anywhere.kinds() == []


def test_content_in_s3_goes_with_a_body_that_ttl_removed_and_not_while_a_row_names_it(
    world: World,
) -> None:
    checked = Checked(world)
    far = world.now + timedelta(days=600)
    world.dead(payload=noise(MIB), expires_at=far)
    ((_, body),) = [
        each for each in world.items(TABLES.tasks).items() if each[0][1].startswith("B#")
    ]
    assert body["k"]["S"].startswith("keep/")
    before = checked.stored()
    world.store.clean_up(removed(body))
    assert checked.stored() == before
    expire(world)
    world.store.clean_up(removed(body))
    assert [key.split("/")[0] for key in checked.stored()] == ["90d"]


def test_a_purge_leaves_the_stream_nothing_to_do(world: World) -> None:
    dead_after_failures(world, payload=noise(3000))
    row = world.row()
    world.store.purge(seen_dead(world), now=world.now, op_id="op")
    with FaultScript(world.client) as faults:
        world.store.clean_up(removed(row))
    assert (world.kinds(), faults.count("BatchWriteItem")) == (
        [],
        1,
    )  # of the body, which costs nothing more
