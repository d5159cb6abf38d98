"""The contract of the DLQ: dead tasks are listed, redriven with a full budget and their history,
or purged.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lifecycle import NO_EDIT, Edit
from rdq_core.domain.task import Status, Task
from rdq_core.engine.ports import Page, QueueCounts
from rdq_core.errors import RdqError, TaskConflict, TaskNotFound
from rdq_core.testing.contract.bench import Bench, pages, side_by_side
from rdq_core.testing.contract.factories import an_error, noise

PAGE_SIZES = (1, 2, 7, 100)


class RedriveContract:
    """A redrive restores the full budget and keeps everything else, unless it edits the task."""

    def test_a_task_bears_the_mark_of_the_request_that_sent_it_back_through_what_comes_after(
        self, bench: Bench
    ) -> None:
        task_id = bench.dead().id
        assert not bench.store.bears_mark(task_id, "job-7")
        bench.store.redrive(
            bench.entry(task_id), NO_EDIT, now=bench.now, op_id="job-7", shards=bench.shards
        )

        claim = bench.claim(task_id)
        bench.dead_letter(claim)

        assert bench.store.bears_mark(task_id, "job-7")
        assert not bench.store.bears_mark(task_id, "job-8")
        bench.redrive(task_id)
        assert not bench.store.bears_mark(task_id, "job-7")
        assert not bench.store.bears_mark("01J00000000000000000000000", "job-7")

    def test_one_request_sends_a_task_back_once_however_often_it_asks(self, bench: Bench) -> None:
        task_id = bench.dead().id
        entry = bench.entry(task_id)
        for _ in range(3):
            sent = bench.store.redrive(
                entry, NO_EDIT, now=bench.now, op_id="job-7", shards=bench.shards
            )
            assert (sent.status, sent.redrive_count) == (Status.PENDING, 1)
        bench.dead_letter(bench.claim(task_id))

        assert (
            bench.store.redrive(
                entry, NO_EDIT, now=bench.now, op_id="job-7", shards=bench.shards
            ).redrive_count
            == 1
        )
        assert bench.task(task_id).status is Status.DEAD

    def test_a_redriven_task_is_due_with_a_full_budget_and_its_history(self, bench: Bench) -> None:
        task = bench.dead(
            payload=noise(3000), headers={"a": "b"}, unknown={"new": 1}, handler_version="v3"
        )
        bench.clock.advance("5m")

        redriven = bench.redrive(task.id)

        assert redriven == bench.task(task.id)
        assert (redriven.status, redriven.next_attempt_at) == (Status.PENDING, bench.now)
        assert (redriven.attempt_count, redriven.redrive_count, redriven.completed_at) == (
            0,
            1,
            None,
        )
        kept = (
            "attempts",
            "payload",
            "headers",
            "unknown",
            "handler_ref",
            "handler_version",
            "created_at",
            "queue",
        )
        assert {name: getattr(redriven, name) for name in kept} == {
            name: getattr(task, name) for name in kept
        }
        assert (bench.store.dead_entry(task.id), bench.dead_entries()) == (None, [])
        assert [each.task_id for each in bench.candidates()] == [task.id]

    def test_attempt_numbers_go_on_across_a_redrive(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.reschedule(claim)
        bench.dead_letter(bench.claim(claim.task.id))

        bench.redrive(claim.task.id)
        again = bench.claim(claim.task.id)
        assert (again.attempt_no, again.task.attempt_count) == (3, 0)
        bench.complete(again)

        assert (bench.numbers(claim.task.id), bench.task(claim.task.id).attempt_count) == (
            [1, 2, 3],
            1,
        )

    def test_a_redriven_task_whose_lease_then_lapses_keeps_counting(self, bench: Bench) -> None:
        task = bench.dead()
        bench.redrive(task.id)

        claim = bench.reclaim(bench.reclaim(bench.claim(task.id)))

        assert (claim.task.attempt_count, claim.attempt_no) == (2, 4)
        assert bench.numbers(task.id) == [1, 2, 3]
        bench.dead_letter(claim)
        entry = bench.entry(task.id)
        assert (entry.attempts, entry.redrive_count, bench.numbers(task.id)) == (4, 1, [1, 2, 3, 4])

    def test_a_task_that_died_of_three_lapsed_leases_has_its_full_budget_again(
        self, bench: Bench
    ) -> None:
        claim = bench.reclaim(bench.reclaim(bench.claimed()))
        assert bench.dead_letter_lapsed(bench.lapse(claim))
        assert (bench.task(claim.task.id).attempt_count, bench.entry(claim.task.id).attempts) == (
            3,
            3,
        )

        bench.redrive(claim.task.id)

        again = bench.claim(claim.task.id)
        assert (again.task.attempt_count, again.attempt_no) == (0, 4)
        bench.reschedule(again)
        assert (bench.task(again.task.id).attempt_count, bench.numbers(again.task.id)) == (
            1,
            [1, 2, 3, 4],
        )

    def test_a_task_may_die_and_come_back_many_times(self, bench: Bench) -> None:
        task_id = bench.dead().id
        for round_number in range(1, 6):
            bench.clock.advance("1m")
            assert bench.redrive(task_id).redrive_count == round_number
            bench.dead_letter(bench.claim(task_id))

        assert (bench.numbers(task_id), bench.entry(task_id).redrive_count) == (
            [1, 2, 3, 4, 5, 6],
            5,
        )
        assert len(bench.dead_entries()) == 1

    def test_an_outdated_entry_redrives_and_purges_nothing(self, bench: Bench) -> None:
        task = bench.dead()
        outdated = bench.entry(task.id)
        bench.clock.advance("1m")
        bench.redrive(task.id)
        bench.dead_letter(bench.claim(task.id))
        before = bench.everything(task.id)

        refuses_both(bench, outdated, TaskConflict)

        assert bench.everything(task.id) == before

    @pytest.mark.parametrize(
        "status", [Status.PENDING, Status.IN_FLIGHT, Status.SUCCEEDED, Status.CANCELLED]
    )
    def test_what_is_not_dead_is_neither_redriven_nor_purged(
        self, bench: Bench, status: Status
    ) -> None:
        dead, other = bench.task_in(Status.DEAD), bench.task_in(status)
        entry = replace(bench.entry(dead.id), task_id=other.id)
        before = bench.everything(entry.task_id)

        refuses_both(bench, entry, TaskConflict)

        assert bench.everything(entry.task_id) == before

    def test_what_is_not_there_is_not_found(self, bench: Bench) -> None:
        entry = bench.entry(bench.dead().id)

        refuses_both(bench, replace(entry, task_id="0" * 26), TaskNotFound)

    def test_a_dead_task_whose_retention_is_over_is_not_brought_back(self, bench: Bench) -> None:
        entry = bench.entry(bench.dead(keep=timedelta(hours=1)).id)
        bench.clock.advance("1h")

        refuses_both(bench, entry, TaskNotFound)

        assert bench.store.get(entry.task_id) is None

    def test_one_entry_is_redriven_once_by_many(self, bench: Bench) -> None:
        for _ in range(4):
            task = bench.dead()
            entry = bench.entry(task.id)

            operators = [replace(bench, store=bench.another()) for _ in range(6)]

            outcomes = side_by_side(
                [partial(operator.redrive_entry, entry) for operator in operators]
            )

            assert sum(isinstance(outcome, Task) for outcome in outcomes) == 1
            assert sum(isinstance(outcome, TaskConflict) for outcome in outcomes) == 5
            assert bench.task(task.id).redrive_count == 1

    def test_of_redrive_and_purge_one_wins(self, bench: Bench) -> None:
        for _ in range(6):
            task = bench.dead(payload=noise(2000))
            purger = replace(bench, store=bench.another())

            operators: list[Callable[[], object]] = [
                partial(bench.redrive, task.id),
                partial(purger.purge, task.id),
            ]

            redriven, purged = side_by_side(operators)

            assert isinstance(redriven, Exception) != isinstance(purged, Exception)
            if isinstance(redriven, Task):
                assert bench.task(task.id).payload == noise(2000)
                assert bench.numbers(task.id) == [1]
            else:
                assert bench.store.get(task.id) is None

    def test_a_task_of_many_shards_is_found_again_when_the_number_of_shards_has_changed(
        self, bench: Bench
    ) -> None:
        tasks = {bench.dead().id for _ in range(8)}
        bench.shards = 4

        for task_id in tasks:
            bench.redrive(task_id)

        assert {each.task_id for each in bench.candidates()} == tasks


class EditContract:
    """What a redrive may change, and what it keeps."""

    @pytest.mark.parametrize("before", [10, 3000])
    @pytest.mark.parametrize("after", [0, 10, 3000, 100_000])
    def test_an_edited_payload_replaces_the_old_one(
        self, bench: Bench, before: int, after: int
    ) -> None:
        task = bench.dead(payload=noise(before), headers={"a": "b"}, unknown={"new": [1]})

        bench.redrive(task.id, Edit(payload=noise(after)))

        claim = bench.claim(task.id)
        loaded = bench.store.load(claim)
        assert (loaded.payload, loaded.payload_content_type) == (noise(after), "application/json")
        assert (loaded.headers, loaded.unknown) == ({"a": "b"}, {"new": [1]})
        bench.dead_letter(claim)
        assert bench.entry(task.id).payload_size == after
        assert bench.task(task.id).payload == noise(after)

    @pytest.mark.parametrize("size", [10, 3000])
    def test_an_edited_content_type_leaves_the_payload(self, bench: Bench, size: int) -> None:
        task = bench.dead(payload=noise(size))

        bench.redrive(task.id, Edit(payload_content_type="text/csv"))

        stored = bench.task(task.id)
        assert (stored.payload, stored.payload_content_type) == (noise(size), "text/csv")

    @pytest.mark.parametrize("size", [10, 3000])
    def test_another_handler_takes_over_with_payload_and_history(
        self, bench: Bench, size: int
    ) -> None:
        task = bench.dead(handler_ref="mispelt", payload=noise(size))

        bench.redrive(task.id, Edit(handler_ref="spelt-right" + "x" * 200))

        stored = bench.task(task.id)
        assert (stored.handler_ref, stored.payload) == ("spelt-right" + "x" * 200, noise(size))
        assert (bench.candidate(task.id).handler_ref, bench.numbers(task.id)) == (
            stored.handler_ref,
            [1],
        )

    def test_a_pinned_version_is_changed_dropped_or_kept(self, bench: Bench) -> None:
        edits = {
            "v4": Edit(handler_version="v4"),
            None: Edit(unpin=True),
            "v3": Edit(handler_ref="other"),
        }
        for version, edit in edits.items():
            task = bench.dead(handler_version="v3")

            bench.redrive(task.id, edit)

            assert bench.claim(task.id).task.handler_version == version
            assert bench.task(task.id).handler_version == version

    def test_a_refused_redrive_edits_nothing(self, bench: Bench) -> None:
        task = bench.dead(payload=noise(3000))
        entry = bench.entry(task.id)
        bench.clock.advance("1m")
        bench.redrive(task.id)
        before = bench.everything(task.id)

        with pytest.raises(TaskConflict):
            bench.redrive_entry(entry, Edit(payload=noise(5000), handler_ref="other"))

        assert bench.everything(task.id) == before


class PurgeContract:
    """A purge removes the task with everything that belongs to it."""

    @pytest.mark.parametrize("size", [10, 3000])
    def test_nothing_is_left(self, bench: Bench, size: int) -> None:
        claim = bench.claimed(payload=noise(size))
        for _ in range(5):
            bench.reschedule(claim, error=an_error("x" * 2000))
            claim = bench.claim(claim.task.id)
        bench.dead_letter(claim)
        nothing = bench.raw("0" * 26)

        bench.purge(claim.task.id)

        assert (bench.store.get(claim.task.id), bench.store.dead_entry(claim.task.id)) == (
            None,
            None,
        )
        assert (bench.dead_entries(), bench.store.counts("billing").dead) == ([], 0)
        assert bench.raw(claim.task.id) == nothing

    def test_other_tasks_stay(self, bench: Bench) -> None:
        purged, kept = bench.dead().id, bench.dead().id
        before = bench.raw(kept)

        bench.purge(purged)

        assert (bench.raw(kept), [entry.task_id for entry in bench.dead_entries()]) == (
            before,
            [kept],
        )


class CountContract:
    """The numbers of tasks that wait, run and are dead, and the oldest due time."""

    def test_an_empty_queue_has_nothing(self, bench: Bench) -> None:
        assert bench.store.counts("billing") == QueueCounts(
            pending=0, in_flight=0, dead=0, oldest_due_at=None, exact=True
        )

    def test_each_status_is_counted_and_ended_tasks_are_not(self, bench: Bench) -> None:
        bench.shards = 4
        for status in (*Status, *Status):
            bench.task_in(status)
        bench.submit(queue="email")

        counts = bench.store.counts("billing")

        assert (counts.pending, counts.in_flight, counts.dead, counts.exact) == (2, 2, 2, True)

    def test_the_oldest_due_is_of_what_waits_and_not_of_what_runs(self, bench: Bench) -> None:
        bench.claimed()
        later, sooner = bench.now + timedelta(hours=2), bench.now + timedelta(hours=1)
        bench.submit(next_attempt_at=later)
        assert bench.store.counts("billing").oldest_due_at == later
        bench.submit(next_attempt_at=sooner)
        assert bench.store.counts("billing").oldest_due_at == sooner


class PageContract:
    """Pages neither skip nor repeat an entry that stays, whatever arrives in the meantime."""

    def test_dead_entries_come_oldest_first_over_pages_of_every_size(self, bench: Bench) -> None:
        bench.shards = 4
        born = []
        for _ in range(9):
            born.append(bench.dead().id)
            bench.clock.advance("1s")

        for size in PAGE_SIZES:
            assert [entry.task_id for entry in bench.dead_entries(limit=size)] == born

    def test_many_entries_of_the_same_time_are_each_listed_once_while_others_arrive(
        self, bench: Bench
    ) -> None:
        bench.shards = 2
        stay = bench.many_dead(bench.many)
        bench.clock.advance("1s")
        for size in PAGE_SIZES:
            listed = while_others_arrive(
                partial(bench.store.dead, "billing", limit=size), bench.dead, times=12
            )

            assert {task_id: listed[task_id] for task_id in stay} == dict.fromkeys(stay, 1)
            assert max(listed.values()) == 1

    @pytest.mark.parametrize("size", [1, 3])
    def test_entries_that_leave_take_no_other_one_with_them(self, bench: Bench, size: int) -> None:
        bench.shards = 2
        bench.many_dead(30)
        born = [entry.task_id for entry in bench.dead_entries()]
        leaving = iter(born[1::3])

        listed = while_others_arrive(
            partial(bench.store.dead, "billing", limit=size),
            lambda: bench.redrive(next(leaving)),
            times=10,
        )

        stay = [task_id for place, task_id in enumerate(born) if place % 3 != 1]
        assert {task_id: listed[task_id] for task_id in stay} == dict.fromkeys(stay, 1)

    def test_many_candidates_of_the_same_time_are_each_proposed_once_while_others_arrive(
        self, bench: Bench
    ) -> None:
        stay = [bench.submit().id for _ in range(bench.many // 2)]
        for size in PAGE_SIZES:
            proposed = while_others_arrive(
                partial(bench.store.candidates, "billing", 0, until=bench.now, limit=size),
                bench.submit,
                times=12,
            )

            assert {task_id: proposed[task_id] for task_id in stay} == dict.fromkeys(stay, 1)
            assert max(proposed.values()) == 1

    def test_candidates_that_are_claimed_take_no_other_one_with_them(self, bench: Bench) -> None:
        born = [bench.submit().id for _ in range(30)]
        leaving = iter(born[::3])

        proposed = while_others_arrive(
            partial(bench.store.candidates, "billing", 0, until=bench.now, limit=2),
            lambda: bench.claim(next(leaving)),
            times=10,
        )

        stay = [task_id for place, task_id in enumerate(born) if place % 3]
        assert {task_id: proposed[task_id] for task_id in stay} == dict.fromkeys(stay, 1)

    @pytest.mark.parametrize("size", PAGE_SIZES)
    def test_the_oldest_deaths_come_first_and_a_handle_is_plain_json(
        self, bench: Bench, size: int
    ) -> None:
        died: list[str] = []
        for _ in range(7):
            died.append(bench.dead().id)
            bench.clock.advance("1s")
        listed: list[str] = []
        handle: Any = None
        while True:
            page = bench.store.dead("billing", limit=size, after=json.loads(json.dumps(handle)))
            listed += [entry.task_id for entry in page.items]
            handle = page.next
            if handle is None:
                break
        assert listed == died

    def test_a_page_that_ends_exactly_with_the_last_entry_leads_nowhere_else(
        self, bench: Bench
    ) -> None:
        for _ in range(4):
            bench.dead()

        read = list(pages(partial(bench.store.dead, "billing", limit=2)))

        assert sum(len(page.items) for page in read) == 4
        assert all(len(page.items) <= 2 for page in read)

    def test_the_entries_of_another_queue_are_not_listed(self, bench: Bench) -> None:
        bench.dead(queue="email")
        bench.dead(queue="billing.eu")

        assert bench.dead_entries("billing") == []


def while_others_arrive(
    read: Callable[..., Page[Any]], happens: Callable[[], object], *, times: int
) -> Counter[str]:
    """The number of times that each task is listed when something happens after each of the
    first pages.
    """
    listed: Counter[str] = Counter()
    for number, page in enumerate(pages(read)):
        listed.update(entry.task_id for entry in page.items)
        if number < times:
            happens()
    return listed


def refuses_both(bench: Bench, entry: DeadEntry, error: type[RdqError]) -> None:
    """Neither redrive nor purge changes the task."""
    with pytest.raises(error):
        bench.redrive_entry(entry)
    with pytest.raises(error):
        bench.store.purge(entry, now=bench.now, op_id="op-of-the-purge")
