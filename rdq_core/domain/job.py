"""A bulk operation on dead tasks, as it is written down: whoever finds the record can go on with
it.

                 page begun                      page ended
    OPEN ───────────────────────► OPEN, holder ─────────────► OPEN ... ──► DONE
     │ ▲                                                       │ canary fails
     ▼ │ resume                                                ▼
    PAUSED                 OPEN, PAUSED ── cancel ──► CANCELLED, STOPPED

The invariant: a page is written down before the first of its tasks is touched, so of each of them
it can be told afterwards whether it was done.
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
    """Whoever has time for its next page may take it: a command line, a sweep, the ops function."""
    PAUSED = "paused"
    """A person has stopped it at a checkpoint. It goes on when one says so."""
    DONE = "done"
    """Everything that it is about was tried."""
    STOPPED = "stopped"
    """Its canary failed, or its queue is gone. What was not tried stays as it was."""
    CANCELLED = "cancelled"
    """A person has ended it. What was not tried stays as it was."""

    @property
    def is_over(self) -> bool:
        """Whether it will never touch another task."""
        return self in (JobState.DONE, JobState.STOPPED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A dead task as a job has seen it: which death, and how many attempts were on record then."""

    task_id: str
    dead_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One bulk operation. `id` marks every task that it sends back, so none is sent back twice.

    `order` is what was asked for, as JSON data. Only deaths up to `cutoff` are its business; the
    next page may begin at `due_at`. `expected` is how many there were when it began, None where
    nobody counted.
    """

    id: str
    operation: str
    queue: str
    order: Mapping[str, Any]
    created_at: datetime
    cutoff: datetime
    due_at: datetime

    # Who asked and why. `intent` is the id of the audit record that was written before the job.
    principal: str
    verified: bool
    intent: str
    reason: str | None = None

    state: JobState = JobState.OPEN
    revision: int = 1
    ended_at: datetime | None = None
    note: str | None = None

    # How far it has read the DLQ, in the store's own words, and the page in work with whoever holds
    # it.
    cursor: Any = None
    reads_on: bool = True
    page: tuple[Seen, ...] = ()
    holder: str | None = None
    held_until: datetime | None = None

    # What has come of it. `refusals` are the first few reasons, as JSON data.
    expected: int | None = None
    selected: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    refusals: tuple[Mapping[str, Any], ...] = ()

    # Those that went first. `judged_by` is set while they are watched, and says until when.
    canary: tuple[Seen, ...] = ()
    judged_by: datetime | None = None
    is_proved: bool = False

    def is_held(self, now: datetime) -> bool:
        """Whether somebody is at work on its page."""
        return self.held_until is not None and self.held_until > now

    def is_ready(self, now: datetime) -> bool:
        """Whether whoever has time may take it on at this moment."""
        if self.page:
            return not self.is_held(now)
        return self.state is JobState.OPEN and self.due_at <= now

    def continues(self, earlier: "Job") -> bool:
        """Whether this is `earlier`, as it was or further on: what a job began with never changes."""
        return all(getattr(self, name) == getattr(earlier, name) for name in _BEGAN_WITH)

    def changed(self, **fields: Any) -> "Job":
        """The next version of the record."""
        return replace(self, revision=self.revision + 1, **fields)
