"""Bulk operations on dead tasks: start, list, pause, resume, cancel and advance them."""

from datetime import timedelta
from typing import Final

from rdq_core.domain.ids import check_id
from rdq_core.domain.job import Job, JobState
from rdq_core.engine.auditor import Auditor
from rdq_core.errors import TaskConflict, TaskNotFound
from rdq_core.ops.advancing import Advancer
from rdq_core.ops.orders import Order, check_order
from rdq_core.ops.parts import OperatorParts

SETTLES_WITHIN: Final = timedelta(seconds=5)
"""How long a death may take to appear in the DLQ's index: a job leaves younger ones alone, so that
it can't miss one and take the next.
"""


class JobControl:
    """Queries about bulk operations, and changes of them.

    It treats `at_once` tasks of a page side by side.
    """

    def __init__(self, parts: OperatorParts, *, at_once: int = 8) -> None:
        self._jobs = parts.jobs
        self._queues = parts.queues
        self._advancer = Advancer(parts, at_once=at_once)
        self._clock = parts.clock
        self._ids = parts.ids

    def start(
        self,
        queue: str,
        order: Order,
        auditor: Auditor,
        *,
        reason: str | None = None,
        expected: int | None = None,
    ) -> Job:
        """Store a job, which any host may then advance. It is on the audit log before.

        Raises QueueNotFound, InputInvalid for an order that doesn't fit the queue, and StoreFailed
        when no job was stored.
        """
        check_order(order, self._queues.settings(queue))
        job_id = self._ids.task_id()
        intent = auditor.begin(
            order.operation, queue, reason=reason, detail={"job_id": job_id, **order.to_plain()}
        )
        now = self._clock.now()
        job = Job(
            id=job_id,
            operation=order.operation,
            queue=queue,
            order=order.to_plain(),
            created_at=now,
            cutoff=now - SETTLES_WITHIN,
            due_at=now,
            principal=intent.principal,
            verified=intent.verified,
            intent=intent.id,
            reason=reason,
            expected=expected,
        )
        self._jobs.create(job)
        return job

    def get(self, job_id: str) -> Job:
        """A job, open or ended. Raises TaskNotFound when there is none."""
        job = self._jobs.get(check_id(job_id, "job_id"))
        if job is None:
            raise TaskNotFound(f"no job {job_id}", task_id=job_id, hint="rdq job list")
        return job

    def list(self, *, limit: int = 50) -> list[Job]:
        """The open jobs, then the last ones that have ended, the newest first."""
        return [*reversed(self._jobs.open_jobs()), *self._jobs.ended_jobs(limit=limit)][:limit]

    def pause(self, job_id: str) -> Job:
        """Stop a job at the end of its page, until it is resumed. TaskConflict when it is over."""
        return self._set_state(job_id, JobState.PAUSED)

    def resume(self, job_id: str, auditor: Auditor) -> Job:
        """Resume a paused job. An open one stays as it is. Raises TaskConflict when it is over."""
        job = self._still_open(self.get(job_id))
        if job.state is not JobState.PAUSED:
            return job
        with auditor.recorded("job.resume", job.queue, detail={"job_id": job.id}):
            return self._set_state(job_id, JobState.OPEN)

    def cancel(self, job_id: str, auditor: Auditor, *, reason: str | None = None) -> Job:
        """End a job.

        Tasks that it has not reached stay as they are. Raises TaskConflict when it is over already.
        """
        job = self._still_open(self.get(job_id))
        with auditor.recorded("job.cancel", job.queue, reason=reason, detail={"job_id": job.id}):
            self._set_state(job_id, JobState.CANCELLED)
        return self.advance(job_id)

    def advance(self, job_id: str, *, take_over: bool = False) -> Job:
        """One step of a job, as `Advancer.advance`. Raises TaskNotFound too."""
        return self._advancer.advance(self.get(job_id), take_over=take_over)

    def _set_state(self, job_id: str, state: JobState) -> Job:
        while True:
            job = self._still_open(self.get(job_id))
            ended_at = self._clock.now() if state.is_over else None
            changed = job.changed(state=state, ended_at=ended_at)
            # Another host may have advanced it since it was read: then it is read again.
            if self._jobs.replace(job, changed):
                return changed

    def _still_open(self, job: Job) -> Job:
        if job.state.is_over:
            raise TaskConflict(
                f"job {job.id} is {job.state} already",
                task_id=job.id,
                hint=f"rdq job watch {job.id}",
            )
        return job
