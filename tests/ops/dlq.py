"""One queue's dead tasks with their readers, editors and jobs: on stores in memory, or on tables
whose requests a test disturbs.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from rdq_core.domain.attempt import AttemptError
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.ids import last_id
from rdq_core.domain.job import Job, JobState
from rdq_core.domain.lifecycle import NO_RESULT
from rdq_core.domain.task import Failure, Status
from rdq_core.engine.auditor import Principal
from rdq_core.engine.ports import AuditRecord, Candidate
from rdq_core.ops.background_jobs import BackgroundJobs
from rdq_core.ops.dead_letter_edits import DeadLetterEditor
from rdq_core.ops.dead_letters import DeadLetters
from rdq_core.ops.job_control import SETTLES_WITHIN, JobControl
from rdq_core.ops.orders import Operation, Order
from rdq_core.ops.selection import Selection
from rdq_core.runtime.wiring import Parts
from rdq_core.testing.contract.factories import a_failed, a_grant, a_success, a_task, an_error
from tests.engine.world import QUEUE, World

ALL = Selection(all=True)
ANN = Principal("ann", verified=True)


def an_order(operation: Operation = Operation.REDRIVE, **fields: Any) -> Order:
    """A redrive of everything at a page of two a second, unless the fields say otherwise."""
    given: dict[str, Any] = {"selection": ALL, "rate": "2/s", **fields}
    return Order(operation=operation, **given)


class Dlq:
    """One queue's DLQ, and methods for what is done to it, each at the clock's present moment."""

    def __init__(self, world: World | None = None, parts: Parts | None = None) -> None:
        self.world = world or World()
        self.clock = self.world.clock
        self.parts = parts or self.world.parts
        self.store = self.parts.store

    # -- readers and editors -----------------------------------------------------------------------

    @property
    def reader(self) -> DeadLetters:
        return DeadLetters(self.parts)

    @property
    def edits(self) -> DeadLetterEditor:
        return DeadLetterEditor(self.parts, self.parts.auditor(ANN))

    def jobs(self, parts: Parts | None = None) -> JobControl:
        """Job control as a new process builds it."""
        return JobControl(parts or self.parts, at_once=1)

    def background_work(self) -> BackgroundJobs:
        """Background work as a new sweep builds it."""
        return BackgroundJobs(self.parts, at_once=1)

    def start(self, order: Order | None = None, **options: Any) -> Job:
        """A job about all that is dead so far: the clock moves until that is old enough."""
        self.clock.advance(SETTLES_WITHIN)
        return self.jobs().start(QUEUE, order or an_order(), self.parts.auditor(ANN), **options)

    def finish(self, job: Job, parts: Parts | None = None) -> Job:
        """Advance a job to its end, moving the clock to each next page."""
        jobs = self.jobs(parts)
        for _ in range(10_000):
            job = jobs.advance(job.id)
            if job.state is not JobState.OPEN and not job.page:
                return job
            self.wait_for(job)
        raise AssertionError(f"it never ended: {job}")

    def wait_for(self, job: Job) -> None:
        ready = max([job.due_at, *([job.held_until] if job.page and job.held_until else [])])
        self.clock.advance(max(ready - self.clock.now(), timedelta(0)))

    # -- tasks -------------------------------------------------------------------------------------

    def fill(self, number: int = 1, **fields: Any) -> list[str]:
        """Adds this number of tasks that have died, one a second."""
        return [self.add_dead(**fields) for _ in range(number)]

    def add_dead(
        self,
        *,
        fingerprint: str = "v1:a",
        error_type: str = "Boom",
        error: AttemptError | None = None,
        **fields: Any,
    ) -> str:
        task_id = self.store.submit(replace(a_task(**fields), queue=QUEUE), shards=1).task.id
        self.dead_letter(task_id, fingerprint=fingerprint, error_type=error_type, error=error)
        return task_id

    def dead_letter(
        self,
        task_id: str,
        *,
        fingerprint: str = "v1:a",
        error_type: str = "Boom",
        error: AttemptError | None = None,
    ) -> None:
        claim = self._claim(task_id)
        now = self.clock.advance("1s")
        failure = Failure("task_failed", error_type, "boom")
        attempt = a_failed(claim, now, error=error or an_error())
        self.store.dead_letter(
            claim, attempt, failure, now=now, fingerprint=fingerprint, expires_at=None
        )

    def succeed(self, task_id: str) -> None:
        claim = self._claim(task_id)
        now = self.clock.now()
        self.store.complete(
            claim, a_success(claim, now), NO_RESULT, now=now, expires_at=now + timedelta(days=1)
        )

    def _claim(self, task_id: str) -> Any:
        page = self.store.candidates(QUEUE, 0, until=self.clock.now(), limit=500)
        candidate: Candidate = next(each for each in page.items if each.task_id == task_id)
        claim = self.store.claim(candidate, a_grant(self.clock.now()))
        assert claim is not None
        return claim

    # -- reading ------------------------------------------------------------------------------

    def dead(self) -> list[DeadEntry]:
        found: list[DeadEntry] = []
        after: Any = None
        while True:
            page = self.store.dead(QUEUE, limit=100, after=after)
            found += page.items
            after = page.next
            if after is None:
                return found

    def dead_ids(self) -> list[str]:
        return [entry.task_id for entry in self.dead()]

    def redrives(self, ids: Iterable[str]) -> dict[str, int]:
        """The number of redrives of each."""
        tasks = [self.store.get(task_id) for task_id in ids]
        return {task.id: task.redrive_count for task in tasks if task is not None}

    def waiting(self, ids: Iterable[str]) -> list[str]:
        return [
            each for each in ids if (task := self.store.get(each)) and task.status is Status.PENDING
        ]

    def records(self) -> list[AuditRecord]:
        """The audit records, oldest first."""
        now = self.clock.now()
        before = last_id(now + timedelta(days=1))
        found = self.parts.audit.records(
            QUEUE, since=now - timedelta(days=30), before=before, limit=100
        )
        return sorted(found, key=lambda record: record.id)


def by_type(glob: str) -> Selection:
    """The entries whose error's type matches."""
    return Selection(type=glob)
