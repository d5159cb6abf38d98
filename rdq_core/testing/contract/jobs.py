"""The contract of job stores: each change happens once, and is based on what its writer read."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.job import Job, JobState, Seen
from rdq_core.engine.ports import CursorKey, JobStore
from rdq_core.errors import StoreFailed
from rdq_core.testing.contract.factories import NOW

FIRST, SECOND, THIRD = ("01J0000000000000000000000" + digit for digit in "123")


def a_job(job_id: str = FIRST, **fields: Any) -> Job:
    """A bulk redrive of `billing` that was just started, unless the fields say otherwise."""
    given: dict[str, Any] = {
        "operation": "dlq.redrive",
        "queue": "billing",
        "order": {"select": {"type": "*Fehler 🏦*"}, "rate": "50/s"},
        "created_at": NOW,
        "cutoff": NOW - timedelta(seconds=5),
        "due_at": NOW,
        "principal": "arn:aws:iam::123456789012:user/ann",
        "verified": True,
        "intent": SECOND,
    }
    return Job(id=job_id, **given | fields)


def in_the_middle() -> Job:
    """A job with a value in every field."""
    seen = Seen(task_id=THIRD, dead_at=NOW - timedelta(hours=1, milliseconds=1), attempts=7)
    return a_job(
        reason="die Bank ist langsam 🏦",
        revision=1,
        note="so far",
        cursor={"0": ["1", THIRD]},
        page=(seen,),
        holder="me",
        held_until=NOW + timedelta(seconds=30),
        expected=3,
        selected=4,
        done=3,
        skipped=1,
        refusals=({"code": "task_conflict", "message": "no", "id": THIRD, "hint": None},),
        canary=(seen, seen),
        judged_by=NOW + timedelta(minutes=5),
        is_proved=True,
    )


def over(job: Job) -> Job:
    """The same job, done a minute later."""
    return job.changed(state=JobState.DONE, ended_at=NOW + timedelta(minutes=1))


class JobContract:
    """A job changes from the version that its writer read, or not at all.

    Fixtures: `jobs`, `cursor_keys`.
    """

    @pytest.mark.parametrize("job", [a_job(), in_the_middle()], ids=["new", "in the middle"])
    def test_a_job_is_read_as_it_was_written(self, jobs: JobStore, job: Job) -> None:
        jobs.create(job)

        assert jobs.get(job.id) == job
        assert list(jobs.open_jobs()) == [job]
        assert list(jobs.ended_jobs(limit=10)) == []

    def test_an_unknown_job_is_none(self, jobs: JobStore) -> None:
        assert jobs.get(FIRST) is None
        assert not jobs.replace(a_job(), a_job().changed(done=1))
        assert jobs.get(FIRST) is None

    def test_a_job_whose_answer_was_lost_is_made_once_and_another_is_not_put_over_it(
        self, jobs: JobStore
    ) -> None:
        jobs.create(a_job())
        jobs.create(a_job())

        with pytest.raises(StoreFailed, match="is there already"):
            jobs.create(a_job(queue="email"))
        assert jobs.get(FIRST) == a_job()

    def test_a_job_that_another_host_has_advanced_is_not_started_again(
        self, jobs: JobStore
    ) -> None:
        gone_on, ended = a_job().changed(done=1), over(a_job().changed(done=1))
        jobs.create(a_job())
        jobs.replace(a_job(), gone_on)

        jobs.create(a_job())
        assert jobs.get(FIRST) == gone_on

        jobs.replace(gone_on, ended)
        jobs.file(ended)
        jobs.create(a_job())
        assert jobs.get(FIRST) == ended
        assert list(jobs.open_jobs()) == []

    def test_of_two_writers_that_read_the_same_job_one_wins(self, jobs: JobStore) -> None:
        jobs.create(a_job())
        mine, theirs = a_job().changed(done=1), a_job().changed(done=2)

        assert jobs.replace(a_job(), mine)
        assert not jobs.replace(a_job(), theirs)

        assert jobs.get(FIRST) == mine

    def test_a_job_that_is_over_is_filed_and_stays_readable(self, jobs: JobStore) -> None:
        ended = over(a_job())
        jobs.create(a_job())
        jobs.create(a_job(SECOND))
        jobs.replace(a_job(), ended)

        jobs.file(ended)
        jobs.file(ended)

        assert jobs.get(FIRST) == ended
        assert list(jobs.open_jobs()) == [a_job(SECOND)]
        assert list(jobs.ended_jobs(limit=10)) == [ended]
        assert not jobs.replace(ended, ended.changed(done=9))

    def test_a_job_that_has_changed_since_it_was_read_is_not_filed(self, jobs: JobStore) -> None:
        jobs.create(a_job())
        jobs.replace(a_job(), a_job().changed(done=1))

        with pytest.raises(StoreFailed, match="has changed"):
            jobs.file(a_job())

        assert list(jobs.open_jobs()) == [a_job().changed(done=1)]

    def test_open_jobs_come_oldest_first_and_ended_ones_newest_first(self, jobs: JobStore) -> None:
        for job_id in (SECOND, FIRST, THIRD):
            jobs.create(a_job(job_id))
        assert [job.id for job in jobs.open_jobs()] == [FIRST, SECOND, THIRD]

        for job in list(jobs.open_jobs()):
            ended = over(job)
            jobs.replace(job, ended)
            jobs.file(ended)

        assert [job.id for job in jobs.ended_jobs(limit=2)] == [THIRD, SECOND]

    def test_the_cursor_key_is_made_once_for_all_processes(
        self, cursor_keys: Callable[[], CursorKey]
    ) -> None:
        first = cursor_keys().key()

        assert len(first) >= 22
        assert cursor_keys().key() == cursor_keys().key() == first
