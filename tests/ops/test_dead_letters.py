"""Looking into the DLQ, and treating named tasks, on a store in memory and a clock that the test
moves.
"""

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.lifecycle import Edit
from rdq_core.engine.ports import Phase
from rdq_core.errors import InputInvalid, QueueNotFound, StaleCursor, StoreFailed, TaskNotFound
from rdq_core.ops.dead_letters import LOOKED_THROUGH
from rdq_core.ops.orders import Operation
from rdq_core.ops.selection import DeadLetterFilter, Selection
from tests.engine.world import QUEUE, World
from tests.ops.dlq import Dlq, an_order, by_type

NOBODY = "01J00000000000000000000000"


@pytest.fixture
def dlq() -> Dlq:
    return Dlq()


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 2, 7, 100])
def test_filtered_pages_neither_skip_nor_repeat(dlq: Dlq, page_size: int) -> None:
    wanted = {dlq.add_dead(fingerprint="v1:a" if number % 3 else "v1:b") for number in range(20)}
    seen: list[str] = []
    cursor = None
    while True:
        page = dlq.reader.entries(
            QUEUE, DeadLetterFilter(group="v1:a"), page_size=page_size, cursor=cursor
        )
        assert len(page.items) <= page_size
        seen += [entry.task_id for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 13
    assert set(seen) <= wanted


def test_times_of_death_are_bounds_that_include_themselves(dlq: Dlq) -> None:
    ids = dlq.fill(3)
    middle = dlq.clock.now() - timedelta(seconds=1)
    assert [
        each.task_id for each in dlq.reader.entries(QUEUE, DeadLetterFilter(since=middle)).items
    ] == ids[1:]
    assert [
        each.task_id for each in dlq.reader.entries(QUEUE, DeadLetterFilter(until=middle)).items
    ] == ids[:2]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"all": True, "ids": ("01J00000000000000000000000",)},
        {"all": True, "type": "*"},
        {"type": "*", "group": "v1:a"},
    ],
)
def test_a_selection_names_its_tasks_in_exactly_one_way(given: dict[str, Any]) -> None:
    with pytest.raises(InputInvalid, match="exactly one"):
        Selection(**given)


def test_ids_given_twice_are_selected_once() -> None:
    one = "01J00000000000000000000000"
    assert Selection(ids=(one, one.lower())).ids == (one,)


def test_a_cursor_of_another_filter_or_queue_is_stale(dlq: Dlq) -> None:
    dlq.fill(3)
    dlq.world.configure("email")
    cursor = dlq.reader.entries(QUEUE, page_size=1).next_cursor
    for queue, filters in ((QUEUE, DeadLetterFilter(type="*")), ("email", DeadLetterFilter())):
        with pytest.raises(StaleCursor):
            dlq.reader.entries(queue, filters, cursor=cursor)


def test_what_dies_after_the_first_page_is_left_to_the_next_list(dlq: Dlq) -> None:
    ids = dlq.fill(4)
    first = dlq.reader.entries(QUEUE, page_size=2)
    late = dlq.fill(3)

    second = dlq.reader.entries(QUEUE, page_size=100, cursor=first.next_cursor)

    assert [entry.task_id for entry in (*first.items, *second.items)] == ids
    assert second.next_cursor is None
    assert [entry.task_id for entry in dlq.reader.entries(QUEUE).items] == ids + late


@pytest.mark.slow
def test_a_page_that_looks_through_very_many_is_honest_about_what_it_has_not_seen(
    dlq: Dlq,
) -> None:
    now = dlq.clock.now()
    for _ in range(LOOKED_THROUGH + 200):
        dlq.add_dead()
        dlq.clock.step(now - dlq.clock.now())
    dlq.clock.advance("10s")
    (rare,) = dlq.fill(error_type="Rare")

    first = dlq.reader.entries(QUEUE, DeadLetterFilter(type="Rare"), page_size=500)
    assert first.items == ()
    assert first.next_cursor is not None
    second = dlq.reader.entries(
        QUEUE, DeadLetterFilter(type="Rare"), page_size=500, cursor=first.next_cursor
    )
    assert [entry.task_id for entry in second.items] == [rare]
    assert second.next_cursor is None


# -- groups ----------------------------------------------------------------------------------------


def test_a_group_is_new_until_a_day_has_passed_or_one_of_it_was_sent_back(dlq: Dlq) -> None:
    ids = dlq.fill(2)
    assert [group.is_new for group in dlq.reader.groups(QUEUE)] == [True]

    dlq.clock.advance("25h")
    assert [group.is_new for group in dlq.reader.groups(QUEUE)] == [False]

    dlq.edits.redrive(QUEUE, ids)
    dlq.dead_letter(ids[0])
    assert [(group.count, group.is_new) for group in dlq.reader.groups(QUEUE)] == [(1, False)]


# -- by ids ----------------------------------------------------------------------------------------


def test_a_storage_failure_is_counted_and_the_rest_goes_on(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = dlq.fill(2)
    redrive = dlq.store.redrive

    def failing_once(entry: Any, *arguments: Any, **options: Any) -> Any:
        if entry.task_id == first:
            raise StoreFailed("no answer", may_have_happened=True, task_id=first)
        return redrive(entry, *arguments, **options)

    monkeypatch.setattr(dlq.store, "redrive", failing_once)
    done = dlq.edits.redrive(QUEUE, [first, second])
    assert (done.selected, done.done, done.failed) == (2, 1, 1)
    assert [refusal.task_id for refusal in done.refusals] == [first]
    assert dlq.dead_ids() == [first]


def test_named_tasks_are_redriven_once_and_refusals_are_reported(dlq: Dlq) -> None:
    dead, waiting = dlq.fill()[0], dlq.world.submit()

    done = dlq.edits.redrive(QUEUE, [dead, dead.lower(), waiting, NOBODY])

    assert (done.selected, done.done, done.skipped, done.failed) == (3, 1, 2, 0)
    assert [refusal.code for refusal in done.refusals] == ["task_conflict", "task_not_found"]


def test_named_tasks_are_removed(dlq: Dlq) -> None:
    ids = dlq.fill(3)
    assert dlq.edits.purge(QUEUE, ids[:2]).done == 2
    assert dlq.dead_ids() == ids[2:]


def test_a_dry_run_counts_and_changes_nothing(dlq: Dlq) -> None:
    ids = dlq.fill(2)
    for request in (dlq.edits.redrive, dlq.edits.purge):
        done = request(QUEUE, [*ids, NOBODY], dry_run=True)
        assert (done.selected, done.done, done.skipped, done.dry_run) == (3, 0, 1, True)
    assert (dlq.dead_ids(), dlq.records()) == (ids, [])


def test_an_edit_is_on_record_with_the_digests_of_both_payloads_and_no_payload(
    dlq: Dlq,
) -> None:
    (task_id,) = dlq.fill(payload=b"the old secret")
    edit = Edit(payload=b"the new secret", handler_ref="refund")

    dlq.edits.redrive(QUEUE, [task_id], edit, force=True, reason="a typo")

    intent, end = dlq.records()
    digests = [
        hashlib.sha256(payload).hexdigest() for payload in (b"the old secret", b"the new secret")
    ]
    assert intent.detail == {
        "ids": [task_id],
        "force": True,
        "edit": {
            "handler_ref": "refund",
            "payload_sha256": {"before": digests[0], "after": digests[1]},
        },
    }
    assert (end.phase, end.reason, end.detail["done"]) == (Phase.DONE, "a typo", 1)
    assert "secret" not in repr(dlq.records())


@pytest.mark.parametrize("ids", [[], [NOBODY] * 501, ["nonsense"]])
def test_ids_that_make_no_sense_are_refused_before_anything_is_done(
    dlq: Dlq, ids: list[str]
) -> None:
    for request in (dlq.edits.redrive, dlq.edits.purge):
        with pytest.raises(InputInvalid):
            request(QUEUE, ids)
    assert dlq.records() == []


def test_a_request_about_an_unknown_queue_is_refused(dlq: Dlq) -> None:
    for request in (dlq.edits.redrive, dlq.edits.purge):
        with pytest.raises(QueueNotFound):
            request("nope", [NOBODY])


# -- preview ---------------------------------------------------------------------------------------


def test_a_preview_counts_prices_and_changes_nothing() -> None:
    dlq = Dlq(World(limits={"max_redrives": 1}))
    again = dlq.fill(2, payload=b"x" * 100)
    dlq.edits.redrive(QUEUE, again)
    for task_id in again:
        dlq.dead_letter(task_id)
    dlq.fill(3, payload=b"x" * 100)
    dlq.fill(1, error_type="Other")
    oldest = dlq.dead()[0].dead_at
    dlq.clock.advance("1m")
    dlq.fill(1)
    before = dlq.dead()

    seen = dlq.edits.preview(QUEUE, an_order(selection=by_type("Boom")))

    assert (seen.selected, seen.refused, seen.young) == (5, 2, 1)
    assert (seen.oldest, seen.newest) == (oldest, before[-3].dead_at)
    assert seen.payload_bytes == 500
    assert seen.write_units == 3 * (6 + 3 + 2)
    assert seen.dollars == pytest.approx(33 * 0.625e-6)
    assert dlq.dead() == before


def test_a_purge_is_priced_by_what_it_removes(dlq: Dlq) -> None:
    dlq.fill(2)
    dlq.clock.advance("1m")
    seen = dlq.edits.preview(QUEUE, an_order(Operation.PURGE))
    assert (seen.selected, seen.write_units) == (2, 2 * (5 + 1))


def test_a_preview_lists_pins_to_versions_that_no_longer_exist() -> None:
    target = {"function": "charge", "handler_version": "v3"}
    dlq = Dlq(World(handlers={"charge-card": target}))
    dlq.fill(2, handler_version="v2")
    dlq.fill(1, handler_version="v3")
    dlq.fill(1, handler_version="v1", handler_ref="elsewhere")
    dlq.clock.advance("1m")

    seen = dlq.edits.preview(QUEUE, an_order())

    assert seen.pins == {("charge-card", "v2"): 2, ("charge-card", "v3"): 1, ("elsewhere", "v1"): 1}
    assert seen.gone == ("charge-card v2",)
    assert dlq.edits.preview(QUEUE, an_order(edit=Edit(unpin=True))).gone == ()


def test_a_group_that_is_not_there_is_not_found(dlq: Dlq) -> None:
    dlq.fill()
    with pytest.raises(TaskNotFound, match="v1:nothing"):
        dlq.edits.preview(QUEUE, an_order(selection=Selection(group="v1:nothing")))
