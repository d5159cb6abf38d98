"""A bulk operation on dead tasks, as it is stored: any host that reads the record can continue it.

                 page begun                      page ended
    OPEN ───────────────────────► OPEN, holder ─────────────► OPEN ... ──► DONE
     │ ▲                                                       │ canary fails
     ▼ │ resume                                                ▼
    PAUSED                 OPEN, PAUSED ── cancel ──► CANCELLED, STOPPED

The invariant: a page is stored before the first of its tasks is touched, so that it can be proved
afterwards of each task whether it was done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

_BEGAN_WITH: Final = (
    *("id", "operation", "queue", "order", "created_at", "cutoff"),
    *("principal", "verified", "intent", "reason", "expected"),
)


class JobState(StrEnum):
    """How far a job is."""

    OPEN = "open"
    """Any host may work on its next page: a command line, a sweep, the ops function."""
    PAUSED = "paused"
    """An operator has paused it. It continues when an operator resumes it."""
    DONE = "done"
    """Every task of it was tried."""
    STOPPED = "stopped"
    """Its canary failed, or its queue was deleted. Tasks not tried stay as they were."""
    CANCELLED = "cancelled"
    """An operator has ended it. Tasks not tried stay as they were."""

    @property
    def is_over(self) -> bool:
        """Whether it will never touch another task."""
        return self in (JobState.DONE, JobState.STOPPED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A dead task as a job has read it: which death, and the number of its attempts then."""

    task_id: str
    dead_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One bulk operation. `id` marks every task that it redrives, so that none is redriven twice.

    `order` is the operator's request, as JSON data. Only deaths up to `cutoff` are selected; the
    next page may begin at `due_at`. `expected` is the number of tasks selected at its start, None
    if they were not counted.
    """

    id: str
    operation: str
    queue: str
    order: Mapping[str, Any]
    created_at: datetime
    cutoff: datetime
    due_at: datetime

    # Who asked for it and why. `intent` is the id of the audit record written before the job.
    principal: str
    verified: bool
    intent: str
    reason: str | None = None

    state: JobState = JobState.OPEN
    revision: int = 1
    ended_at: datetime | None = None
    note: str | None = None

    # How far it has read the DLQ (the store's own handle), and the page under way with its holder.
    cursor: Any = None
    reads_on: bool = True
    page: tuple[Seen, ...] = ()
    holder: str | None = None
    held_until: datetime | None = None

    # Its results so far. `refusals` are the first few reasons, as JSON data.
    expected: int | None = None
    selected: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    refusals: tuple[Mapping[str, Any], ...] = ()

    # The tasks that went first. `judged_by` is set while they are watched: until then.
    canary: tuple[Seen, ...] = ()
    judged_by: datetime | None = None
    is_proved: bool = False

    def is_held(self, now: datetime) -> bool:
        """Whether a host works on its page."""
        return self.held_until is not None and self.held_until > now

    def is_ready(self, now: datetime) -> bool:
        """Whether a host may continue it now."""
        if self.page:
            return not self.is_held(now)
        return self.state is JobState.OPEN and self.due_at <= now

    def continues(self, earlier: "Job") -> bool:
        """Whether this is the same job as `earlier`, in this or a later state."""
        return all(getattr(self, name) == getattr(earlier, name) for name in _BEGAN_WITH)

    def changed(self, **fields: Any) -> "Job":
        """The next revision of the record."""
        return replace(self, revision=self.revision + 1, **fields)
