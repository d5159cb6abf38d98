"""Bulk operations on dead tasks as people handle them: start, list, pause, resume, cancel."""

from datetime import timedelta
from typing import Final

from rdq_core.domain.ids import check_id
from rdq_core.domain.job import Job, JobState
from rdq_core.engine.auditor import Auditor
from rdq_core.engine.ports import Clock, IdSource, JobStore, QueueSource
from rdq_core.errors import TaskConflict, TaskNotFound
from rdq_core.ops.advancing import Advancer
from rdq_core.ops.orders import Order, check_order

SETTLES_WITHIN: Final = timedelta(seconds=5)
"""How long a death may take to be listed: younger ones are none of a job's business."""


class Jobs:
    """Requests about bulk operations."""

    def __init__(
        self,
        jobs: JobStore,
        queues: QueueSource,
        advancer: Advancer,
        *,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._jobs = jobs
        self._queues = queues
        self._advancer = advancer
        self._clock = clock
        self._ids = ids

    def start(
        self,
        queue: str,
        order: Order,
        auditor: Auditor,
        *,
        reason: str | None = None,
        expected: int | None = None,
    ) -> Job:
        """Write a job down, for anybody to advance. It is on the audit log before.

        Raises QueueNotFound, InputInvalid for an order that makes no sense, and StoreFailed when
        nothing was begun.
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
        """Stop at the end of the page that is under way, until it is resumed."""
        return self._turn(job_id, JobState.PAUSED)

    def resume(self, job_id: str, auditor: Auditor) -> Job:
        """Let a paused job go on. An open one stays as it is. Raises TaskConflict when it is over."""
        job = self._unless_over(self.get(job_id))
        if job.state is not JobState.PAUSED:
            return job
        with auditor.recorded("job.resume", job.queue, detail={"job_id": job.id}):
            return self._turn(job_id, JobState.OPEN)

    def cancel(self, job_id: str, auditor: Auditor, *, reason: str | None = None) -> Job:
        """End a job: what it hasn't touched stays as it is. Raises TaskConflict when it is over
        already.
        """
        job = self._unless_over(self.get(job_id))
        with auditor.recorded("job.cancel", job.queue, reason=reason, detail={"job_id": job.id}):
            self._turn(job_id, JobState.CANCELLED)
        return self.advance(job_id)

    def advance(self, job_id: str, *, take_over: bool = False) -> Job:
        """One step of a job, as `Advancer.advance`. Raises TaskNotFound too."""
        return self._advancer.advance(self.get(job_id), take_over=take_over)

    def _turn(self, job_id: str, state: JobState) -> Job:
        while True:
            job = self._unless_over(self.get(job_id))
            ended_at = self._clock.now() if state.is_over else None
            turned = job.changed(state=state, ended_at=ended_at)
            if self._jobs.replace(job, turned):
                return turned

    def _unless_over(self, job: Job) -> Job:
        if job.state.is_over:
            raise TaskConflict(
                f"job {job.id} is {job.state} already",
                task_id=job.id,
                hint=f"rdq job watch {job.id}",
            )
        return job
