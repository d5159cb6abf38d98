"""Storage of operators' work: audit records, bulk operations, and the key that signs page
cursors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from rdq_core.domain.job import Job


class Phase(StrEnum):
    """At which point of an operation an audit record was written."""

    INTENT = "intent"
    """Before the first write. Without a later record the operation was interrupted: it may have
    happened, wholly or in part.
    """
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """Who did what, when and why. Never a payload: `detail` has names, numbers, digests and
    configuration.

    `id` is a ULID of the time `at`; the records of one operation share `operation_id`, the first
    one's id. `verified` when AWS vouches for the principal; otherwise it is the caller's claim.
    """

    id: str
    operation_id: str
    at: datetime
    principal: str
    verified: bool
    operation: str
    queue: str
    reason: str | None
    phase: Phase
    detail: Mapping[str, Any] = field(default_factory=dict)


class AuditLog(Protocol):
    """Audit records. They are only added, never changed."""

    def append(self, record: AuditRecord) -> None:
        """Store one record, once. Raises StoreFailed when it isn't stored: an operation without its
        intent must not begin.
        """
        ...

    def records(
        self, queue: str, *, since: datetime, before: str, limit: int
    ) -> Sequence[AuditRecord]:
        """At most `limit` records of a queue, newest first, from `since` on and with ids below
        `before`.
        """
        ...


class JobStore(Protocol):
    """Where bulk operations are stored. Each change needs the revision that its writer has read."""

    def create(self, job: Job) -> None:
        """Store a new job, once: a repetition changes nothing, whether the job is still open or has
        ended meanwhile.

        Raises StoreFailed when it isn't stored.
        """
        ...

    def get(self, job_id: str) -> Job | None:
        """A job, read consistently, open or ended. Raises CorruptItem when it can't be read."""
        ...

    def open_jobs(self) -> Sequence[Job]:
        """The jobs that are not filed, oldest first, read consistently. Unreadable ones are left
        out.
        """
        ...

    def ended_jobs(self, *, limit: int) -> Sequence[Job]:
        """At most `limit` filed jobs, newest first."""
        ...

    def replace(self, seen: Job, job: Job) -> bool:
        """Replace the open job that was `seen`. False, and nothing is written, when it has changed
        since.
        """
        ...

    def file(self, job: Job) -> None:
        """Move a job that is over, as the caller read it, to the ended ones. Safe to repeat."""
        ...


class CursorKey(Protocol):
    """The key that signs page cursors."""

    def key(self) -> bytes:
        """The key, the same for all programs of an installation; created when there is none."""
        ...


class BackgroundWork(Protocol):
    """Work of a host that is not tasks, done in slices between its looks for tasks."""

    def step(self, *, until: datetime) -> datetime | None:
        """Do what is due, and begin nothing after `until`. When to call it again; None if no more
        is known.

        An error in one piece of work is reported, and does not raise.
        """
        ...
