"""The contract of submitting many: one answer per task, in order, as if each were submitted
alone.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pytest

from rdq_core.domain.task import Status, Task
from rdq_core.engine.ports import Submission
from rdq_core.errors import RdqError, TaskConflict
from rdq_core.testing.contract.bench import Bench, side_by_side
from rdq_core.testing.contract.factories import a_task, a_task_id, noise
from rdq_core.testing.contract.submitting import PAYLOADS, a_failure_before


def submit_many(bench: Bench, tasks: Sequence[Task]) -> list[Submission | RdqError]:
    """Submit all tasks in one call; one answer each."""
    return bench.store.submit_many(tasks, shards_of=lambda _queue: bench.shards)


def created(answers: Sequence[Submission | RdqError]) -> list[bool | None]:
    """For each answer, whether its task was just stored; None for a refusal."""
    return [answer.created if isinstance(answer, Submission) else None for answer in answers]


class ManyContract:
    """Submitting many tasks has the same effect as submitting each alone."""

    def test_nothing_to_submit_gives_no_answers(self, bench: Bench) -> None:
        assert submit_many(bench, []) == []

    def test_each_answer_is_what_a_submit_alone_would_have_said(self, bench: Bench) -> None:
        there = bench.succeeded()
        elsewhere = bench.submit(queue="email")
        new = [a_task(payload=noise(size)) for size in (0, 10, 3000)]
        given = [
            new[0],
            a_task(id=there.id, payload=b"other"),
            new[1],
            a_task(id=elsewhere.id),
            new[2],
        ]

        answers = submit_many(bench, given)

        assert created(answers) == [True, False, True, None, True]
        assert answers[1] == Submission(bench.task(there.id), created=False)
        assert isinstance(answers[3], TaskConflict)
        for answer, task in zip(answers[::2], new, strict=True):
            assert answer == Submission(bench.task(task.id), created=True)
            assert bench.task(task.id).payload == task.payload

    @pytest.mark.parametrize("payload", PAYLOADS)
    def test_payloads_of_every_size_come_back(self, bench: Bench, payload: str) -> None:
        tasks = [
            a_task(payload=PAYLOADS[payload], headers={"n": str(number)}) for number in range(2)
        ]
        submit_many(bench, tasks)
        for task in tasks:
            loaded = bench.store.load(bench.claim(task.id))
            assert (loaded.payload, loaded.headers) == (task.payload, task.headers)

    def test_failures_before_the_submit_are_history(self, bench: Bench) -> None:
        given = tuple(a_failure_before(bench, number) for number in (1, 2))
        tasks = [a_task(attempts=given) for _ in range(2)]
        submit_many(bench, tasks)
        assert [list(bench.task(task.id).attempts) for task in tasks] == [list(given)] * 2

    def test_submitting_the_same_again_changes_nothing(self, bench: Bench) -> None:
        tasks = [a_task(payload=noise(2000 + number)) for number in range(60)]
        assert created(submit_many(bench, tasks)) == [True] * 60
        claim = bench.claim(tasks[7].id)
        before = [bench.everything(task.id) for task in tasks]

        again = submit_many(bench, tasks)

        assert created(again) == [False] * 60
        assert isinstance(again[7], Submission)
        assert (again[7].task.status, again[7].task.id) == (Status.IN_FLIGHT, claim.task.id)
        assert [bench.everything(task.id) for task in tasks] == before

    def test_an_id_that_comes_twice_is_stored_once_as_it_came_first(self, bench: Bench) -> None:
        task_id = a_task_id()
        tasks = [
            a_task(),
            a_task(id=task_id, payload=b"first"),
            a_task(),
            a_task(id=task_id, payload=b"second"),
        ]
        assert created(submit_many(bench, tasks)) == [True, True, True, False]
        assert bench.task(task_id).payload == b"first"

    def test_an_id_whose_retention_is_over_is_free(self, bench: Bench) -> None:
        old = bench.succeeded(payload=noise(2000))
        bench.clock.advance("25h")
        assert created(submit_many(bench, [a_task(), a_task(id=old.id, payload=b"new")])) == [
            True,
            True,
        ]
        assert (bench.task(old.id).payload, bench.numbers(old.id)) == (b"new", [])

    def test_tasks_for_later_are_due_then(self, bench: Bench) -> None:
        submit_many(
            bench, [a_task(next_attempt_at=bench.now + timedelta(hours=hours)) for hours in (1, 2)]
        )
        assert [len(bench.candidates(ahead=timedelta(hours=hours))) for hours in (0, 1, 2)] == [
            0,
            1,
            2,
        ]

    def test_of_the_same_many_submitted_at_once_each_is_stored_once(self, bench: Bench) -> None:
        tasks = [a_task(payload=noise(1500)) for _ in range(30)]
        stores = [bench.another() for _ in range(3)]

        outcomes = side_by_side(
            [
                partial(store.submit_many, tasks, shards_of=lambda _: bench.shards)
                for store in stores
            ]
        )

        answers = [created(outcome) for outcome in outcomes if not isinstance(outcome, Exception)]
        assert [sum(bool(each) for each in of_task) for of_task in zip(*answers, strict=True)] == [
            1
        ] * 30
        assert {bench.task(task.id).payload for task in tasks} == {noise(1500)}
