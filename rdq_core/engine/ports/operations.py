"""What operators leave behind: audit records, bulk operations, and the key under which page cursors
are signed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from rdq_core.domain.job import Job


class Phase(StrEnum):
    """Where in an operation an audit record was written."""

    INTENT = "intent"
    """Before the first write. One without a later record was interrupted: it may have happened,
    wholly or in part.
    """
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """Who did what, when and why. Never a payload: `detail` has names, numbers, digests, and
    configuration.

    `id` is a ULID of the time `at`; records of one operation share `operation_id`, the first one's
    id. `verified` says that AWS vouches for the principal; otherwise it is what the caller says.
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
    """Records that are only ever added."""

    def append(self, record: AuditRecord) -> None:
        """Store one record, once. StoreFailed when it isn't stored: an operation without its record
        must not begin.
        """
        ...

    def records(
        self, queue: str, *, since: datetime, before: str, limit: int
    ) -> Sequence[AuditRecord]:
        """The newest records of a queue from `since` on with ids below `before`, the newest first,
        at most `limit`.
        """
        ...


class JobStore(Protocol):
    """Where bulk operations are written down: each change under the revision that its writer has
    read.
    """

    def create(self, job: Job) -> None:
        """Store a new job, once: the same again changes nothing, whether it is open still or has
        ended meanwhile.

        Raises StoreFailed when it isn't stored.
        """
        ...

    def get(self, job_id: str) -> Job | None:
        """A job, read consistently, open or ended. Raises CorruptItem when it can't be read."""
        ...

    def open_jobs(self) -> Sequence[Job]:
        """The jobs that are not filed, the oldest first, read consistently. What can't be read is
        left out.
        """
        ...

    def ended_jobs(self, *, limit: int) -> Sequence[Job]:
        """The jobs that were filed, the newest first."""
        ...

    def replace(self, seen: Job, job: Job) -> bool:
        """Put `job` in the place of the open job that was `seen`. False, and nothing written, when
        it has changed.
        """
        ...

    def file(self, job: Job) -> None:
        """Move a job that is over, as it was seen, from the open ones to the ended. Safe to repeat."""
        ...


class CursorKey(Protocol):
    """What page cursors are signed with."""

    def key(self) -> bytes:
        """The key of this installation, the same for all of its programs; made when there is none."""
        ...


class BackgroundWork(Protocol):
    """What a host does besides its tasks, a little at a time."""

    def step(self, *, until: datetime) -> datetime | None:
        """Do what is due, and begin nothing more after `until`. When there is more to do; None
        while there isn't.

        Never raises for what goes wrong with one of them.
        """
        ...
