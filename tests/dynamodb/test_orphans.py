"""The search for orphans: what is proved to be nobody's goes, and everything else stays as it
is.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.ids import encode_id
from rdq_core.domain.lifecycle import NO_EDIT, Edit, Result
from rdq_core.domain.limits import MIB
from rdq_core.engine.ports import OrphanKind
from rdq_core.errors import LeaseLost, StoreFailed
from rdq_core.ops.garbage import Collected, collect
from rdq_core.stores.dynamodb import orphans
from rdq_core.stores.dynamodb.claim_check import object_key
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.test_claim_check import Checked
from tests.dynamodb.test_cleanup import dead_after_failures, expire
from tests.dynamodb.verbs import EVERY, HOUR, noise, seen_dead
from tests.dynamodb.world import FAILURE, SHARDS, TABLES, TASK_ID, World

TWO_DAYS = timedelta(hours=48)


def counted(counts: Any) -> dict[str, int]:
    return {str(kind): count for kind, count in counts.items() if count}


def found(world: World) -> dict[str, int]:
    return counted(collect(world.store, dry_run=True).found)


def removed(world: World) -> dict[str, int]:
    return counted(collect(world.store).removed)


def zombie_record(world: World) -> str:
    """A record beside the history: of an attempt that somebody else's lapse had taken the number of
    already.
    """
    zombie = world.claimed()
    lapsed = world.lapse()
    with FaultScript(world.client) as faults:
        faults.lose_request("BatchWriteItem", times=None)
        assert world.store.reclaim(lapsed, world.lost(lapsed), world.grant()) is not None
        with pytest.raises(LeaseLost):
            world.store.reschedule(zombie, world.failed(zombie), FAILURE, due_at=world.now)
    return f"A#1#{zombie.claim_id}"


@pytest.mark.parametrize("prepare", EVERY, ids=lambda prepare: prepare.__name__)
def test_nothing_that_a_verb_writes_is_ever_taken_for_remains(world: World, prepare: Any) -> None:
    prepare(world)()
    before = world.everything()
    world.clock.advance("72h")
    assert removed(world) == {}
    assert world.everything() == before


def test_a_record_whose_number_the_history_gave_to_another_goes(anywhere: World) -> None:
    kind = zombie_record(anywhere)
    assert kind in anywhere.kinds()
    assert (found(anywhere), removed(anywhere), found(anywhere)) == (
        {"attempts": 1},
        {"attempts": 1},
        {},
    )
    assert kind not in anywhere.kinds()
    assert len(anywhere.got().attempts) == 1


def test_a_record_that_may_be_published_yet_stays(world: World) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.lose_request("UpdateItem", times=None)
        with pytest.raises(StoreFailed):
            world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    world.clock.advance("72h")
    assert removed(world) == {}
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    assert len(world.got().attempts) == 1


@pytest.mark.parametrize(
    ("age", "expected"), [(TWO_DAYS, {"attempts": 4, "bodies": 1}), (HOUR, {"bodies": 1})]
)
def test_what_a_row_left_behind_goes_when_its_records_are_two_days_old(
    world: World, age: timedelta, expected: dict[str, int]
) -> None:
    dead_after_failures(world, payload=noise(3000))
    expire(world)
    world.clock.advance(age)
    assert removed(world) == expected


def test_records_of_a_submit_that_never_ended_go_after_two_days(world: World) -> None:
    earlier = tuple(
        replace(world.failed(world.claimed(encode_id(9))), fencing_token=None) for _ in range(1)
    )
    with FaultScript(world.client) as faults:
        faults.lose_request(
            "PutItem", times=None, where=lambda request: request.params["TableName"] == TABLES.tasks
        )
        with pytest.raises(StoreFailed):
            world.submit(attempts=earlier)
    assert removed(world) == {}
    world.clock.advance(TWO_DAYS)
    assert removed(world) == {"attempts": 1}


def test_the_records_of_an_earlier_life_go_and_the_present_ones_stay(world: World) -> None:
    dead_after_failures(world, payload=noise(3000), expires_at=world.now + HOUR)
    world.clock.advance(TWO_DAYS)
    claim = world.claimed(payload=noise(4000))
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    assert removed(world) == {"attempts": 4, "entries": 1}
    assert (world.got().payload, len(world.got().attempts)) == (noise(4000), 1)


def test_an_entry_that_another_life_has_put_meanwhile_stays(world: World) -> None:
    world.dead(expires_at=world.now + HOUR)
    world.clock.advance(TWO_DAYS)
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.interleave(lambda: world.bury(claim), "DeleteItem")
        removed(world)
    assert seen_dead(world).dead_at == world.now


def test_a_body_without_an_end_that_no_row_names_goes(world: World) -> None:
    world.dead(payload=noise(3000))
    with FaultScript(world.client) as faults:
        faults.lose_request("BatchWriteItem", times=None)
        edit = Edit(payload=noise(4000))
        world.store.redrive(seen_dead(world), edit, now=world.now, op_id="a", shards=SHARDS)
    world.bury(world.claim())
    assert removed(world) == {"bodies": 1}
    assert world.got().payload == noise(4000)


def test_a_result_that_is_not_published_yet_stays_and_goes_when_it_never_was(world: World) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.lose_request("UpdateItem", times=None)
        with pytest.raises(StoreFailed):
            world.store.complete(
                claim,
                world.succeeded(claim),
                Result(content=noise(3000)),
                now=world.now,
                expires_at=None,
            )
    assert removed(world) == {}
    world.store.release(claim, FAILURE, due_at=world.now)
    assert removed(world) == {"results": 1}


def test_an_object_that_no_rule_expires_goes_when_it_is_old_and_nobodys(anywhere: World) -> None:
    checked = Checked(anywhere)
    # Objects' times are the engine's own, and the test's clock is elsewhere.
    anywhere.clock.step(checked.put_at() - anywhere.now)
    anywhere.dead(payload=noise(MIB))
    orphan = object_key(encode_id(8), "s3-orphan", ends_at=None, now=anywhere.now)
    checked.s3.put_object(Bucket=checked.bucket, Key=orphan, Body=b"x")
    assert removed(anywhere) == {}
    anywhere.clock.advance("49h")
    assert (found(anywhere), removed(anywhere)) == ({"objects": 1}, {"objects": 1})
    assert orphan not in checked.stored()
    assert anywhere.got().payload == noise(MIB)


def test_what_a_row_needs_that_cannot_be_read_stays(world: World) -> None:
    dead_after_failures(world, payload=noise(3000))
    world.client.put_item(
        TableName=TABLES.tasks, Item={**world.row(), "v": {"N": "2"}, "b": {"S": "elsewhere"}}
    )
    world.clock.advance("72h")
    assert removed(world) == {}


def test_a_dry_run_counts_and_removes_nothing(world: World) -> None:
    zombie_record(world)
    before = world.everything()
    done = collect(world.store, dry_run=True)
    assert done.as_dict()["found"] == {
        "attempts": 1,
        "entries": 0,
        "bodies": 0,
        "results": 0,
        "objects": 0,
    }
    assert (counted(done.removed), done.examined[OrphanKind.ATTEMPT], world.everything()) == (
        {},
        2,
        before,
    )


def test_the_search_goes_page_by_page_and_tells_how_far_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "_PAGE", 3)
    for number in range(1, 5):
        world.dead(encode_id(number), payload=noise(3000))
    told: list[Collected] = []
    done = collect(world.store, progress=told.append)
    assert (
        done.examined[OrphanKind.ATTEMPT],
        done.examined[OrphanKind.ENTRY],
        done.examined[OrphanKind.BODY],
    ) == (
        4,
        4,
        4,
    )
    assert len(told) >= 6


def test_remains_are_found_across_pages_within_a_long_history(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie_record(world)
    for _ in range(6):
        world.clock.advance("60s")
        lapsed = world.lapse() if world.row()["status"]["S"] == "IN_FLIGHT" else world.claim()
        world.store.reschedule(lapsed, world.failed(lapsed), FAILURE, due_at=world.now)
        world.claim()
    monkeypatch.setattr(orphans, "_PAGE", 2)
    assert removed(world) == {"attempts": 1}
    assert len(world.got().attempts) == 7


def test_a_redriven_task_keeps_its_whole_history(world: World) -> None:
    dead_after_failures(world)
    world.store.redrive(seen_dead(world), NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    world.bury(world.claim())
    world.clock.advance("72h")
    assert removed(world) == {}
    assert (len(world.got().attempts), TASK_ID in str(world.kinds())) == (5, False)
