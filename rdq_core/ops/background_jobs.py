"""Open jobs as background work of sweeps: each sweep advances them for a slice of its time."""

from datetime import datetime, timedelta
from typing import Final

from rdq_core.domain.job import Job, JobState
from rdq_core.domain.times import earliest
from rdq_core.errors import StoreFailed, Unavailable
from rdq_core.ops.advancing import Advancer
from rdq_core.ops.parts import OperatorParts

_LOOKS_EVERY: Final = timedelta(seconds=15)
"""How often a host looks for jobs after it has found none open, and how long it leaves a job alone
that it failed to advance.
"""


class BackgroundJobs:
    """Advances open jobs, `at_once` tasks of a page side by side."""

    def __init__(self, parts: OperatorParts, *, at_once: int = 8) -> None:
        self._jobs = parts.jobs
        self._advancer = Advancer(parts, at_once=at_once)
        self._clock = parts.clock
        self._on_error = parts.on_error
        self._looks_at: float | None = None

    def step(self, *, until: datetime) -> datetime | None:
        """See `BackgroundWork.step`. While no job is open, it reads them every 15 seconds only."""
        if self._looks_at is not None and self._clock.monotonic() < self._looks_at:
            return None
        try:
            open_jobs = [job for job in self._jobs.open_jobs() if job.state is not JobState.PAUSED]
        except (StoreFailed, Unavailable) as failed:
            self._on_error(failed, where="looking for jobs")
            open_jobs = []
        self._looks_at = (
            None if open_jobs else self._clock.monotonic() + _LOOKS_EVERY.total_seconds()
        )
        return earliest([self._advance(job, until) for job in open_jobs])

    def _advance(self, job: Job, until: datetime) -> datetime | None:
        """Advance the job as far as its pace and the time allow. The moment of its next step."""
        try:
            while not job.state.is_over and job.is_ready(now := self._clock.now()) and now < until:
                job = self._advancer.advance(job)
            job = self._advancer.advance(job) if job.state.is_over else job
        # A job that can't be read or carried out must not stop the others.
        except Exception as error:  # noqa: BLE001
            self._on_error(error, where=f"job {job.id}")
            return self._clock.now() + _LOOKS_EVERY
        return _due_at(job) if job.state is JobState.OPEN or job.page else None


def _due_at(job: Job) -> datetime:
    return job.held_until if job.page and job.held_until is not None else job.due_at
