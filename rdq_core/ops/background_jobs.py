"""The open jobs as a host's side-line: every sweep takes them on for a slice of its time."""

from datetime import datetime, timedelta
from typing import Final

from rdq_core.domain.job import Job, JobState
from rdq_core.engine.ports import Clock, ErrorSink, JobStore
from rdq_core.errors import StoreFailed, Unavailable
from rdq_core.ops.advancing import Advancer

_LOOKS_EVERY: Final = timedelta(seconds=15)
"""How often a host looks that has found no job open, and how long it leaves one alone that it can't
take on.
"""


class BackgroundJobs:
    """What a host does for jobs."""

    def __init__(
        self, jobs: JobStore, advancer: Advancer, *, clock: Clock, on_error: ErrorSink
    ) -> None:
        self._jobs = jobs
        self._advancer = advancer
        self._clock = clock
        self._on_error = on_error
        self._looks_at: float | None = None

    def step(self, *, until: datetime) -> datetime | None:
        """See `BackgroundWork.step`. While nothing is open it looks again after a quarter of a
        minute only.
        """
        if self._looks_at is not None and self._clock.monotonic() < self._looks_at:
            return None
        try:
            found = [job for job in self._jobs.open_jobs() if job.state is not JobState.PAUSED]
        except (StoreFailed, Unavailable) as failed:
            self._on_error(failed, where="looking for jobs")
            found = []
        self._looks_at = None if found else self._clock.monotonic() + _LOOKS_EVERY.total_seconds()
        wakes = [self._advance(job, until) for job in found]
        return min((moment for moment in wakes if moment is not None), default=None)

    def _advance(self, job: Job, until: datetime) -> datetime | None:
        """Take the job on as far as its pace and the time allow; when to come back."""
        try:
            while not job.state.is_over and job.is_ready(now := self._clock.now()) and now < until:
                job = self._advancer.advance(job)
            job = self._advancer.advance(job) if job.state.is_over else job
        # one that can't be understood or carried out stops no other
        except Exception as error:  # noqa: BLE001
            self._on_error(error, where=f"job {job.id}")
            return self._clock.now() + _LOOKS_EVERY
        return _due_at(job) if job.state is JobState.OPEN or job.page else None


def _due_at(job: Job) -> datetime:
    return job.held_until if job.page and job.held_until is not None else job.due_at
