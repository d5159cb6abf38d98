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
from rdq_core.ops.dead_letter_edits import DeadLetterEditor
from rdq_core.ops.dead_letters import LOOKED_THROUGH, DeadLetters
from rdq_core.ops.orders import Operation
from rdq_core.ops.selection import Filters, Selection
from tests.engine.world import QUEUE, World
from tests.ops.crew import ANN, Crew, an_order, by_type

NOBODY = "01J00000000000000000000000"


class Morgue(Crew):
    """A DLQ that tests fill, and the desks at which one asks about it."""

    @property
    def desk(self) -> DeadLetters:
        return self.parts.dead_letters()

    @property
    def edits(self) -> DeadLetterEditor:
        return self.parts.dead_letter_editor(ANN)


@pytest.fixture
def morgue() -> Morgue:
    return Morgue()


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 2, 7, 100])
def test_filtered_pages_neither_skip_nor_repeat(morgue: Morgue, page_size: int) -> None:
    wanted = {morgue._bury(fingerprint="v1:a" if number % 3 else "v1:b") for number in range(20)}
    seen: list[str] = []
    cursor = None
    while True:
        page = morgue.desk.entries(QUEUE, Filters(group="v1:a"), page_size=page_size, cursor=cursor)
        assert len(page.items) <= page_size
        seen += [entry.task_id for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 13
    assert set(seen) <= wanted


def test_times_of_death_are_bounds_that_include_themselves(morgue: Morgue) -> None:
    ids = morgue.bury(3)
    middle = morgue.clock.now() - timedelta(seconds=1)
    assert [
        each.task_id for each in morgue.desk.entries(QUEUE, Filters(since=middle)).items
    ] == ids[1:]
    assert [
        each.task_id for each in morgue.desk.entries(QUEUE, Filters(until=middle)).items
    ] == ids[:2]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"everything": True, "ids": ("01J00000000000000000000000",)},
        {"everything": True, "filters": Filters(type="*")},
        {"filters": Filters(type="*", group="v1:a")},
    ],
)
def test_a_selection_is_exactly_one_kind(given: dict[str, Any]) -> None:
    with pytest.raises(InputInvalid, match="exactly one"):
        Selection(**given)


def test_ids_given_twice_are_selected_once() -> None:
    one = "01J00000000000000000000000"
    assert Selection(ids=(one, one.lower())).ids == (one,)


def test_a_cursor_of_another_filter_or_queue_is_stale(morgue: Morgue) -> None:
    morgue.bury(3)
    morgue.world.configure("email")
    cursor = morgue.desk.entries(QUEUE, page_size=1).next_cursor
    for queue, filters in ((QUEUE, Filters(type="*")), ("email", Filters())):
        with pytest.raises(StaleCursor):
            morgue.desk.entries(queue, filters, cursor=cursor)


def test_what_dies_after_the_first_page_is_left_to_the_next_list(morgue: Morgue) -> None:
    ids = morgue.bury(4)
    first = morgue.desk.entries(QUEUE, page_size=2)
    late = morgue.bury(3)

    second = morgue.desk.entries(QUEUE, page_size=100, cursor=first.next_cursor)

    assert [entry.task_id for entry in (*first.items, *second.items)] == ids
    assert second.next_cursor is None
    assert [entry.task_id for entry in morgue.desk.entries(QUEUE).items] == ids + late


@pytest.mark.slow
def test_a_page_that_looks_through_very_many_is_honest_about_what_it_has_not_seen(
    morgue: Morgue,
) -> None:
    now = morgue.clock.now()
    for _ in range(LOOKED_THROUGH + 200):
        morgue._bury()
        morgue.clock.step(now - morgue.clock.now())
    morgue.clock.advance("10s")
    (rare,) = morgue.bury(error_type="Rare")

    first = morgue.desk.entries(QUEUE, Filters(type="Rare"), page_size=500)
    assert first.items == ()
    assert first.next_cursor is not None
    second = morgue.desk.entries(
        QUEUE, Filters(type="Rare"), page_size=500, cursor=first.next_cursor
    )
    assert [entry.task_id for entry in second.items] == [rare]
    assert second.next_cursor is None


# -- groups ----------------------------------------------------------------------------------------


def test_a_group_is_new_until_a_day_has_passed_or_one_of_it_was_sent_back(morgue: Morgue) -> None:
    ids = morgue.bury(2)
    assert [group.is_new for group in morgue.desk.groups(QUEUE)] == [True]

    morgue.clock.advance("25h")
    assert [group.is_new for group in morgue.desk.groups(QUEUE)] == [False]

    morgue.edits.redrive(QUEUE, ids)
    morgue.kill(ids[0])
    assert [(group.count, group.is_new) for group in morgue.desk.groups(QUEUE)] == [(1, False)]


# -- by ids ----------------------------------------------------------------------------------------


def test_a_storage_failure_is_counted_and_the_rest_goes_on(
    morgue: Morgue, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = morgue.bury(2)
    redrive = morgue.store.redrive

    def failing_once(entry: Any, *arguments: Any, **options: Any) -> Any:
        if entry.task_id == first:
            raise StoreFailed("no answer", may_have_happened=True, task_id=first)
        return redrive(entry, *arguments, **options)

    monkeypatch.setattr(morgue.store, "redrive", failing_once)
    done = morgue.edits.redrive(QUEUE, [first, second])
    assert (done.selected, done.done, done.failed) == (2, 1, 1)
    assert [refusal.task_id for refusal in done.refusals] == [first]
    assert morgue.dead_ids() == [first]


def test_named_tasks_are_treated_once_and_what_cannot_be_is_told(morgue: Morgue) -> None:
    dead, waiting = morgue.bury()[0], morgue.world.submit()

    done = morgue.edits.redrive(QUEUE, [dead, dead.lower(), waiting, NOBODY])

    assert (done.selected, done.done, done.skipped, done.failed) == (3, 1, 2, 0)
    assert [refusal.code for refusal in done.refusals] == ["task_conflict", "task_not_found"]


def test_named_tasks_are_removed(morgue: Morgue) -> None:
    ids = morgue.bury(3)
    assert morgue.edits.purge(QUEUE, ids[:2]).done == 2
    assert morgue.dead_ids() == ids[2:]


def test_a_dry_run_counts_and_changes_nothing(morgue: Morgue) -> None:
    ids = morgue.bury(2)
    for request in (morgue.edits.redrive, morgue.edits.purge):
        done = request(QUEUE, [*ids, NOBODY], dry_run=True)
        assert (done.selected, done.done, done.skipped, done.dry_run) == (3, 0, 1, True)
    assert (morgue.dead_ids(), morgue.records()) == (ids, [])


def test_an_edit_is_on_record_with_the_digests_of_both_payloads_and_no_payload(
    morgue: Morgue,
) -> None:
    (task_id,) = morgue.bury(payload=b"the old secret")
    edit = Edit(payload=b"the new secret", handler_ref="refund")

    morgue.edits.redrive(QUEUE, [task_id], edit, force=True, reason="a typo")

    intent, end = morgue.records()
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
    assert "secret" not in repr(morgue.records())


@pytest.mark.parametrize("ids", [[], [NOBODY] * 501, ["nonsense"]])
def test_ids_that_make_no_sense_are_refused_before_anything_is_done(
    morgue: Morgue, ids: list[str]
) -> None:
    for request in (morgue.edits.redrive, morgue.edits.purge):
        with pytest.raises(InputInvalid):
            request(QUEUE, ids)
    assert morgue.records() == []


def test_a_request_about_an_unknown_queue_is_refused(morgue: Morgue) -> None:
    for request in (morgue.edits.redrive, morgue.edits.purge):
        with pytest.raises(QueueNotFound):
            request("nope", [NOBODY])


# -- preview ---------------------------------------------------------------------------------------


def test_a_preview_counts_prices_and_changes_nothing() -> None:
    morgue = Morgue(World(limits={"max_redrives": 1}))
    again = morgue.bury(2, payload=b"x" * 100)
    morgue.edits.redrive(QUEUE, again)
    for task_id in again:
        morgue.kill(task_id)
    morgue.bury(3, payload=b"x" * 100)
    morgue.bury(1, error_type="Other")
    oldest = morgue.dead()[0].dead_at
    morgue.clock.advance("1m")
    morgue.bury(1)
    before = morgue.dead()

    seen = morgue.edits.preview(QUEUE, an_order(selection=by_type("Boom")))

    assert (seen.selected, seen.refused, seen.young) == (5, 2, 1)
    assert (seen.oldest, seen.newest) == (oldest, before[-3].dead_at)
    assert seen.payload_bytes == 500
    assert seen.write_units == 3 * (6 + 3 + 2)
    assert seen.dollars == pytest.approx(33 * 0.625e-6)
    assert morgue.dead() == before


def test_a_purge_is_priced_by_what_it_removes(morgue: Morgue) -> None:
    morgue.bury(2)
    morgue.clock.advance("1m")
    seen = morgue.edits.preview(QUEUE, an_order(Operation.PURGE))
    assert (seen.selected, seen.write_units) == (2, 2 * (5 + 1))


def test_a_preview_tells_which_pins_are_gone() -> None:
    target = {"function": "charge", "handler_version": "v3"}
    morgue = Morgue(World(handlers={"charge-card": target}))
    morgue.bury(2, handler_version="v2")
    morgue.bury(1, handler_version="v3")
    morgue.bury(1, handler_version="v1", handler_ref="elsewhere")
    morgue.clock.advance("1m")

    seen = morgue.edits.preview(QUEUE, an_order())

    assert seen.pins == {("charge-card", "v2"): 2, ("charge-card", "v3"): 1, ("elsewhere", "v1"): 1}
    assert seen.gone == ("charge-card v2",)
    assert morgue.edits.preview(QUEUE, an_order(edit=Edit(unpin=True))).gone == ()


def test_a_group_that_is_not_there_is_not_found(morgue: Morgue) -> None:
    morgue.bury()
    with pytest.raises(TaskNotFound, match="v1:nothing"):
        morgue.edits.preview(
            QUEUE, an_order(selection=Selection(filters=Filters(group="v1:nothing")))
        )
