"""The reference of bulk operations: two mappings behind a lock, gone with the process."""

import threading
from collections.abc import Sequence

from rdq_core.domain.job import Job
from rdq_core.errors import StoreFailed


class MemoryJobs:
    """A `JobStore` in this process's memory, safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Job] = {}
        self._ended: dict[str, Job] = {}

    def create(self, job: Job) -> None:
        """See `JobStore.create`."""
        with self._lock:
            present = self._open.get(job.id) or self._ended.get(job.id)
            if present is None:
                self._open[job.id] = job
            elif not present.continues(job):
                raise StoreFailed(f"job {job.id} is there already", may_have_happened=False)

    def get(self, job_id: str) -> Job | None:
        """See `JobStore.get`."""
        with self._lock:
            return self._open.get(job_id) or self._ended.get(job_id)

    def open_jobs(self) -> Sequence[Job]:
        """See `JobStore.open_jobs`."""
        with self._lock:
            return [self._open[job_id] for job_id in sorted(self._open)]

    def ended_jobs(self, *, limit: int) -> Sequence[Job]:
        """See `JobStore.ended_jobs`."""
        with self._lock:
            return [self._ended[job_id] for job_id in sorted(self._ended, reverse=True)[:limit]]

    def replace(self, seen: Job, job: Job) -> bool:
        """See `JobStore.replace`."""
        with self._lock:
            present = self._open.get(job.id)
            if present is None or present.revision != seen.revision:
                return False
            self._open[job.id] = job
            return True

    def file(self, job: Job) -> None:
        """See `JobStore.file`."""
        with self._lock:
            present = self._open.get(job.id)
            if present is None:
                return
            if present.revision != job.revision:
                raise StoreFailed(
                    f"job {job.id} has changed since it was read", may_have_happened=False
                )
            self._ended[job.id] = self._open.pop(job.id)


class MemoryCursorKey:
    """A `CursorKey` of this process alone."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def key(self) -> bytes:
        """See `CursorKey.key`."""
        return self._key
