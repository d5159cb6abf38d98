"""Requests about bulk operations."""

from datetime import timedelta
from typing import ClassVar, Final

from rdq_core.domain.job import Job
from rdq_core.ops.requests.desks import Desks, Document, Request, Who
from rdq_core.ops.views import job_view, listed

_LONGEST: Final = 20.0


class ListJobs(Request):
    """The open jobs, and the last that have ended."""

    op: ClassVar[str] = "job.list"
    limit: int = 50

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - everybody may look
        """The jobs, open ones first."""
        now = desks.clock.now()
        return listed(
            job_view(job, now) for job in desks.job_desk().list(limit=max(1, min(self.limit, 500)))
        )


class OneJob(Request):
    """A request about one job."""

    job_id: str

    def look(self, desks: Desks, job: Job) -> Document:
        """The job as programs are answered."""
        return job_view(job, desks.clock.now())


class GetJob(OneJob):
    """A job."""

    op: ClassVar[str] = "job.get"

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - the same
        """How far it is."""
        return self.look(desks, desks.job_desk().get(self.job_id))


class AdvanceJob(OneJob):
    """Take a job on for some seconds, as far as its pace allows."""

    op: ClassVar[str] = "job.advance"
    seconds: float = 0.0
    take_over: bool = False

    # whoever asked for the job is on record
    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002
        """How far it is then."""
        until = desks.clock.now() + timedelta(seconds=min(max(self.seconds, 0.0), _LONGEST))
        jobs = desks.job_desk()
        job = jobs.advance(self.job_id, take_over=self.take_over)
        while job.is_ready(desks.clock.now()) and desks.clock.now() < until:
            job = jobs.advance(self.job_id)
        return self.look(desks, job)


class PauseJob(OneJob):
    """Stop a job at the end of its page, until it is resumed."""

    op: ClassVar[str] = "job.pause"

    # it changes no task, and is undone by a word
    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002
        """How far it is."""
        return self.look(desks, desks.job_desk().pause(self.job_id))


class ResumeJob(OneJob):
    """Let a paused job go on."""

    op: ClassVar[str] = "job.resume"

    def answer(self, desks: Desks, who: Who) -> Document:
        """How far it is."""
        return self.look(desks, desks.job_desk().resume(self.job_id, desks.auditor(who())))


class CancelJob(OneJob):
    """End a job. What it hasn't touched stays as it is."""

    op: ClassVar[str] = "job.cancel"
    reason: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:
        """How far it came."""
        return self.look(
            desks, desks.job_desk().cancel(self.job_id, desks.auditor(who()), reason=self.reason)
        )


REQUESTS: Final = (ListJobs, GetJob, AdvanceJob, PauseJob, ResumeJob, CancelJob)
