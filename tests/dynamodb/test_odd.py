"""Odd items: edited by hand, written by a newer rdq, outdated, expired. They are set aside and harm
nobody else.
"""

import zlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.dead import entry_of
from rdq_core.domain.ids import encode_id
from rdq_core.domain.lifecycle import NO_EDIT, Result
from rdq_core.domain.limits import MAX_STACK_BYTES
from rdq_core.domain.task import Status
from rdq_core.engine.ports import Candidate
from rdq_core.errors import CorruptItem, TaskConflict, TaskNotFound
from rdq_core.stores.dynamodb import reading, stacks
from rdq_core.stores.dynamodb.dead_letters import entry_item
from rdq_core.stores.dynamodb.schema import Attr, partition_of
from rdq_core.stores.dynamodb.values import Reader
from tests.dynamodb.verbs import HOUR, noise, seen_dead
from tests.dynamodb.world import FAILURE, LEASE, QUEUE, SHARDS, TABLES, TASK_ID, World, a_task
from tests.fuzzing.mutation import BOMB


def _edit(
    world: World, changes: Mapping[str, Any], kind: str = "T", table: str = TABLES.tasks
) -> None:
    item = {**world.items(table)[TASK_ID, kind], **changes}
    world.client.put_item(
        TableName=table, Item={name: value for name, value in item.items() if value is not None}
    )


DAMAGE: dict[str, dict[str, Any]] = {
    "a newer version": {Attr.VERSION: {"N": "2"}},
    "version zero": {Attr.VERSION: {"N": "0"}},
    "a version that is text": {Attr.VERSION: {"S": "1"}},
    "no life": {Attr.LIFE: None},
    "a count that is text": {Attr.ATTEMPT_COUNT: {"S": "1"}},
    "no history length": {Attr.HISTORY_LENGTH: None},
    "a creation time that is text": {Attr.CREATED_AT: {"S": "now"}},
    "no handler": {Attr.HANDLER_REF: None},
    "no fence": {Attr.FENCING_TOKEN: None},
    "an unknown status": {Attr.STATUS: {"S": "PAUSED"}},
    "no status": {Attr.STATUS: None},
    "a fraction of a fence": {Attr.FENCING_TOKEN: {"N": "1.5"}},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_row_that_cannot_be_read_is_told_and_left_as_it_is(world: World, damage: str) -> None:
    world.submit()
    _edit(world, DAMAGE[damage])
    before = world.everything()
    with pytest.raises(CorruptItem) as told:
        world.store.claim(world.candidate(), world.grant())
    assert told.value.task_id == TASK_ID
    with pytest.raises(CorruptItem):
        world.store.get(TASK_ID)
    with pytest.raises(CorruptItem):
        world.store.submit(a_task(payload=b"x"), shards=SHARDS)
    with pytest.raises(CorruptItem):
        world.store.cancel(TASK_ID, now=world.now, op_id="op", expires_at=None)
    assert world.everything() == before


def test_a_held_row_that_cannot_be_read_is_told_and_left_as_it_is(world: World) -> None:
    world.claimed()
    world.clock.advance(LEASE)
    _edit(world, {Attr.CLAIM_TOKEN: None})
    with pytest.raises(CorruptItem):
        world.store.lapsed(world.candidate(), now=world.now)


def test_unreadable_rows_at_the_head_of_a_shard_do_not_hide_what_is_behind(world: World) -> None:
    ids = [encode_id(number) for number in range(1, 40)]
    for task_id in ids:
        world.submit(task_id)
        item = world.items(TABLES.tasks)[task_id, "T"]
        world.client.put_item(
            TableName=TABLES.tasks,
            Item={**item, Attr.STATUS: {"S": "?"}, Attr.DUE_AT: {"N": "-1.5"}},
        )
    world.submit(encode_id(50))
    found = []
    for shard in range(SHARDS):
        after = None
        while True:
            page = world.store.candidates(QUEUE, shard, until=world.now, limit=3, after=after)
            found += [candidate.task_id for candidate in page.items]
            after = page.next
            if after is None:
                break
    assert sorted(found) == sorted([*ids, encode_id(50)])


@pytest.mark.parametrize(
    "changes", [{Attr.META: {"B": b"{"}}, {Attr.META: {"B": b"[1]"}}, {Attr.PAYLOAD: {"S": "x"}}]
)
def test_a_damaged_body_in_the_row_is_found_when_it_is_loaded(
    world: World, changes: dict[str, Any]
) -> None:
    world.submit(payload=b"x")
    _edit(world, changes)
    claim = world.claim()
    with pytest.raises(CorruptItem):
        world.store.load(claim)
    world.bury(claim)
    assert world.store.dead_entry(TASK_ID) is not None


def test_a_missing_body_is_told_and_never_an_empty_payload(world: World) -> None:
    claim = world.claimed(payload=noise(5000))
    body = next(kind for kind in world.kinds() if kind.startswith("B#"))
    world.client.delete_item(
        TableName=TABLES.tasks, Key={"task_id": {"S": TASK_ID}, "kind": {"S": body}}
    )
    with pytest.raises(CorruptItem, match="body"):
        world.store.load(claim)
    with pytest.raises(CorruptItem, match="body"):
        world.store.get(TASK_ID)


def test_a_body_that_does_not_decompress_is_told(world: World) -> None:
    claim = world.claimed(payload=b"ab" * 9000)
    body = next(kind for kind in world.kinds() if kind.startswith("B#"))
    _edit(world, {Attr.PAYLOAD: {"B": b"not zlib"}}, body)
    with pytest.raises(CorruptItem, match="decompressed"):
        world.store.load(claim)


def test_a_history_with_a_hole_is_told_and_never_shown_shortened(world: World) -> None:
    claim = world.claimed()
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    record = next(kind for kind in world.kinds() if kind.startswith("A#"))
    world.client.delete_item(
        TableName=TABLES.dlq, Key={"task_id": {"S": TASK_ID}, "kind": {"S": record}}
    )
    with pytest.raises(CorruptItem, match="history"):
        world.store.get(TASK_ID)
    assert world.claim().attempt_no == 2


def test_a_record_that_cannot_be_read_is_told(world: World) -> None:
    claim = world.claimed()
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    record = next(kind for kind in world.kinds() if kind.startswith("A#"))
    _edit(world, {Attr.OUTCOME: {"S": "MAYBE"}}, record, TABLES.dlq)
    with pytest.raises(CorruptItem, match="outcome"):
        world.store.get(TASK_ID)


def test_an_error_tells_of_a_damaged_item_without_its_contents(world: World) -> None:
    world.submit(payload=b"secret", headers={"authorization": "secret"})
    _edit(world, {Attr.META: {"B": b"secret"}})
    with pytest.raises(CorruptItem) as told:
        world.store.load(world.claim())
    assert "secret" not in f"{told.value} {told.value.hint} {told.value!r}"


def test_claims_do_not_show_what_a_row_carries(world: World) -> None:
    claim = world.claimed(payload=b"secret")
    assert "row=" not in repr(claim)


def test_an_unreadable_entry_is_passed_over_by_lists(world: World) -> None:
    world.dead()
    _edit(world, {Attr.ERROR_CODE: None}, "D", TABLES.dlq)
    other = encode_id(9)
    world.dead(other)
    assert [entry.task_id for entry in world.store.dead(QUEUE, limit=10).items] == [other]


def test_candidates_that_are_gone_or_outdated_are_lost_claims(world: World) -> None:
    world.submit()
    seen = world.candidate()
    world.store.cancel(TASK_ID, now=world.now, op_id="op", expires_at=None)
    gone = Candidate(
        task_id=encode_id(99),
        queue=QUEUE,
        due_at=world.now,
        status=Status.PENDING,
        fencing_token=1,
        handler_ref="h",
    )
    assert [world.store.claim(each, world.grant()) for each in (seen, gone)] == [None, None]
    assert [world.store.lapsed(each, now=world.now) for each in (seen, gone)] == [None, None]
    assert (encode_id(99), "T") not in world.items(TABLES.tasks)


def test_a_claim_before_its_time_is_refused_whatever_the_index_said(world: World) -> None:
    world.submit(next_attempt_at=world.now + HOUR)
    early = world.candidate(until=world.now + HOUR)
    assert world.store.claim(early, world.grant()) is None


def test_a_lapsed_lease_is_not_for_a_claim_to_take(world: World) -> None:
    world.claimed()
    world.clock.advance(LEASE)
    assert world.store.claim(world.candidate(), world.grant()) is None


def test_a_candidate_from_before_a_whole_attempt_claims_nothing(world: World) -> None:
    world.submit()
    seen = world.candidate()
    world.store.release(world.claim(), FAILURE, due_at=world.now)
    assert world.store.claim(seen, world.grant()) is None


def test_an_expired_task_is_absent_to_everybody(world: World) -> None:
    world.dead(expires_at=world.now + timedelta(milliseconds=1500))
    entry = seen_dead(world)
    world.clock.advance("1999ms")
    assert world.store.get(TASK_ID) is not None
    world.clock.advance("1ms")
    assert (world.store.get(TASK_ID), world.store.dead_entry(TASK_ID)) == (None, None)
    assert (list(world.store.dead(QUEUE, limit=5).items), world.store.counts(QUEUE).dead) == ([], 0)
    with pytest.raises(TaskNotFound):
        world.store.purge(entry, now=world.now, op_id="op")


def test_a_reused_id_shows_nothing_of_its_earlier_life(world: World) -> None:
    first = world.claimed(payload=noise(3000))
    world.store.reschedule(first, world.failed(first), FAILURE, due_at=world.now)
    world.bury(world.claim(), expires_at=world.now + HOUR)
    world.clock.advance("1h")
    second = world.claimed(payload=b"new")
    assert (second.attempt_no, second.fencing_token > first.fencing_token) == (1, True)
    world.bury(second)
    task = world.got()
    assert ([attempt.attempt_no for attempt in task.attempts], task.payload) == ([1], b"new")
    assert seen_dead(world).dead_at == world.now


def test_an_entry_of_an_earlier_life_counts_as_absent(world: World) -> None:
    world.dead(expires_at=world.now + HOUR)
    stale = world.items(TABLES.dlq)[TASK_ID, "D"]
    world.clock.advance("1h")
    world.bury(world.claimed())
    world.client.put_item(TableName=TABLES.dlq, Item=stale)
    assert world.store.dead_entry(TASK_ID) is None


def test_redriving_what_has_succeeded_is_refused(world: World) -> None:
    world.dead()
    entry = seen_dead(world)
    world.store.redrive(entry, NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    claim = world.claim()
    world.store.complete(claim, world.succeeded(claim), Result(), now=world.now, expires_at=None)
    with pytest.raises(TaskConflict, match="SUCCEEDED"):
        world.store.redrive(entry, NO_EDIT, now=world.now, op_id="other", shards=SHARDS)
    with pytest.raises(TaskConflict, match="SUCCEEDED"):
        world.store.purge(entry, now=world.now, op_id="other")
    assert [attempt.outcome for attempt in world.got().attempts][-1] is Outcome.SUCCESS


def _bury_many(world: World, numbers: range) -> list[str]:
    """Entries alone, put directly: burying each task properly would be most of the test's time."""
    ids = [encode_id(number) for number in numbers]
    for task_id in ids:
        task = a_task(task_id, status=Status.DEAD, completed_at=world.now, failure=FAILURE)
        entry = entry_of(task, attempts=1, payload_size=0, fingerprint="v1:abc")
        item = entry_item(entry, life="n1", partition=partition_of(task, SHARDS), expires_at=None)
        world.client.put_item(TableName=TABLES.dlq, Item=item)
    return ids


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_pages_neither_skip_nor_repeat_while_entries_of_the_same_time_arrive(
    anywhere: World, limit: int
) -> None:
    stay = _bury_many(anywhere, range(100, 160, 2))
    listed: list[str] = []
    page = anywhere.store.dead(QUEUE, limit=limit)
    arriving = iter(range(101, 121, 2))
    while True:
        listed += [entry.task_id for entry in page.items]
        if page.next is None:
            break
        number = next(arriving, 0)
        _bury_many(anywhere, range(number, number + 1) if number else range(0))
        page = anywhere.store.dead(QUEUE, limit=limit, after=page.next)
    assert len(listed) == len(set(listed))
    assert set(stay) <= set(listed)


def test_entries_come_in_the_order_of_their_deaths_over_all_shards(world: World) -> None:
    for number in range(12):
        _bury_many(world, range(number, number + 1))
        world.clock.advance("1s")
    deaths = [entry.dead_at for entry in world.store.dead(QUEUE, limit=100).items]
    assert (deaths, len(deaths)) == (sorted(deaths), 12)


def test_counting_stops_at_its_bound_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_COUNTED", 5)
    for number in range(30):
        world.submit(encode_id(number))
    counts = world.store.counts(QUEUE)
    assert (counts.exact, counts.oldest_due_at) == (False, world.now)
    assert 5 <= counts.pending <= 5 + SHARDS


def test_what_unpacks_to_more_than_rdq_ever_packs_is_corrupt_and_takes_no_memory() -> None:
    bomb = {str(Attr.PAYLOAD): {"B": BOMB}}
    with pytest.raises(CorruptItem, match="decompressed"):
        Reader(bomb, "a body").unpacked(Attr.PAYLOAD, compressed=True)
    with pytest.raises(zlib.error, match="too large"):
        stacks.decompressed(stacks.compressed(b"x" * (MAX_STACK_BYTES + 1)))
    assert stacks.decompressed(stacks.compressed(b"x" * MAX_STACK_BYTES)) == b"x" * MAX_STACK_BYTES


def test_json_that_is_nested_too_deeply_is_corrupt() -> None:
    with pytest.raises(CorruptItem, match="JSON"):
        Reader({str(Attr.META): {"B": b"[" * 3000}}, "a body").maybe_json(Attr.META)


def edit_by_hand(world: World, table: str, key: dict[str, Any], **number: str) -> None:
    ((name, odd),) = number.items()
    world.client.update_item(
        TableName=table,
        Key=key,
        UpdateExpression=f"SET {name} = :odd",
        ExpressionAttributeValues={":odd": {"N": odd}},
    )


@pytest.mark.parametrize("dead_at", ["1.5", "-1E-130", "1E+125"])
@pytest.mark.parametrize("limit", [1, 10])
def test_an_entry_with_no_whole_number_as_its_time_stops_no_list(
    world: World, dead_at: str, limit: int
) -> None:
    first, odd, last = (encode_id(number) for number in (1, 2, 3))
    for task_id in (first, odd, last):
        world.dead(task_id)
    edit_by_hand(world, TABLES.dlq, {"task_id": {"S": odd}, "kind": {"S": "D"}}, dead_at=dead_at)
    listed, page = [], world.store.dead(QUEUE, limit=limit)
    listed += [entry.task_id for entry in page.items]
    while page.next is not None:
        page = world.store.dead(QUEUE, limit=limit, after=page.next)
        listed += [entry.task_id for entry in page.items]
    assert sorted(listed) == [first, last]


@pytest.mark.parametrize("due_at", ["1.5", "-1", "1E+125"])
def test_a_row_with_no_time_as_its_due_time_is_counted_and_stops_no_count(
    world: World, due_at: str
) -> None:
    odd, good = encode_id(1), encode_id(2)
    world.submit(odd)
    world.submit(good)
    edit_by_hand(world, TABLES.tasks, {"task_id": {"S": odd}, "kind": {"S": "T"}}, due_at=due_at)
    counts = world.store.counts(QUEUE)
    assert (counts.pending, counts.oldest_due_at) == (2, world.now)
