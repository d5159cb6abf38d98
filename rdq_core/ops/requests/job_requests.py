"""Requests about bulk operations."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final

from rdq_core.domain.job import Job
from rdq_core.ops.job_control import JobControl
from rdq_core.ops.requests.context import Document, Request, RequestContext, operation
from rdq_core.ops.views import job_view, listed

_LONGEST: Final = 20.0
_MOST_LISTED: Final = 500


@operation
class ListJobs(Request):
    """The open jobs, and the last that have ended."""

    op: ClassVar[str] = "job.list"
    limit: int = 50

    def answer(self, context: RequestContext) -> Document:
        """The jobs, open ones first."""
        now = context.parts.clock.now()
        jobs = JobControl(context.parts).list(limit=max(1, min(self.limit, _MOST_LISTED)))
        return listed(job_view(job, now) for job in jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneJob(Request):
    """A request about one job."""

    job_id: str


@operation
class GetJob(_OneJob):
    """A job."""

    op: ClassVar[str] = "job.get"

    def answer(self, context: RequestContext) -> Document:
        """The job and its progress."""
        return _view(context, JobControl(context.parts).get(self.job_id))


@operation
class AdvanceJob(_OneJob):
    """Advance a job for some seconds, at its pace."""

    op: ClassVar[str] = "job.advance"
    seconds: float = 0.0
    take_over: bool = False

    def answer(self, context: RequestContext) -> Document:
        """The job and its progress.

        No audit record: the principal who started the job is on record.
        """
        clock, jobs = context.parts.clock, JobControl(context.parts)
        until = clock.now() + timedelta(seconds=min(max(self.seconds, 0.0), _LONGEST))
        job = jobs.advance(self.job_id, take_over=self.take_over)
        while job.is_ready(clock.now()) and clock.now() < until:
            job = jobs.advance(self.job_id)
        return _view(context, job)


@operation
class PauseJob(_OneJob):
    """Stop a job at the end of its page, until it is resumed."""

    op: ClassVar[str] = "job.pause"

    def answer(self, context: RequestContext) -> Document:
        """The job and its progress.

        No audit record: a pause changes no task, and resuming undoes it.
        """
        return _view(context, JobControl(context.parts).pause(self.job_id))


@operation
class ResumeJob(_OneJob):
    """Resume a paused job."""

    op: ClassVar[str] = "job.resume"

    def answer(self, context: RequestContext) -> Document:
        """The job and its progress."""
        return _view(context, JobControl(context.parts).resume(self.job_id, context.auditor()))


@operation
class CancelJob(_OneJob):
    """End a job. Tasks that it has not reached stay as they are."""

    op: ClassVar[str] = "job.cancel"
    reason: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The job and its progress."""
        jobs, auditor = JobControl(context.parts), context.auditor()
        return _view(context, jobs.cancel(self.job_id, auditor, reason=self.reason))


def _view(context: RequestContext, job: Job) -> Document:
    return job_view(job, context.parts.clock.now())
