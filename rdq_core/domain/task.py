"""A task: one call to a handler, kept until it succeeds, fails for good or is cancelled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from rdq_core.domain.attempt import TYPE_OF_CODE, Attempt, Code

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"


class Status(StrEnum):
    """The state of a task. The transitions between them are in `rdq_core.domain.lifecycle`."""

    PENDING = "PENDING"
    """Stored, and claimable from `next_attempt_at` on."""
    IN_FLIGHT = "IN_FLIGHT"
    """Claimed under a lease."""
    SUCCEEDED = "SUCCEEDED"
    """Done; kept for the queue's `task_ttl`."""
    DEAD = "DEAD"
    """Failed for good: in the DLQ with its history; kept for the queue's `dead_ttl`."""
    CANCELLED = "CANCELLED"
    """Stopped by a person or program; kept for the queue's `task_ttl`."""

    @property
    def is_terminal(self) -> bool:
        """Whether no worker will touch the task again."""
        return self in (Status.SUCCEEDED, Status.DEAD, Status.CANCELLED)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task is dead, or waits again. `type` and `message` are None in short reads."""

    code: str
    type: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task, with the fields of the wire envelope.

    `id` stays the same for the task's whole life, redrives included. `attempt_count` is the part of
    the budget that is spent: 0 again after a redrive, while the attempts' numbers go on.
    `next_attempt_at` is set only while PENDING, `lease_expires_at` only while IN_FLIGHT,
    `completed_at` only when terminal. `attempts` is the history, oldest first; it is empty in lists
    and in claims, where only its length is known. rdq never interprets `payload`.
    """

    id: str
    queue: str
    handler_ref: str
    handler_version: str | None = None
    payload: bytes = b""
    payload_content_type: str = DEFAULT_CONTENT_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)
    status: Status = Status.PENDING
    attempt_count: int = 0
    redrive_count: int = 0
    next_attempt_at: datetime | None = None
    lease_expires_at: datetime | None = None
    created_at: datetime
    completed_at: datetime | None = None
    failure: Failure | None = None
    concurrency_key: str | None = None
    target: str | None = None
    requested_by: str | None = None
    result: bytes | None = None
    result_content_type: str | None = None
    attempts: Sequence[Attempt] = ()
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def is_due(self, now: datetime) -> bool:
        """Whether a claim may take it now: it waits and is due, or its lease has lapsed."""
        claimable_at = self.next_attempt_at or self.lease_expires_at
        return claimable_at is not None and claimable_at <= now


_MESSAGES: Final[Mapping[str, str]] = {
    Code.ATTEMPTS_EXHAUSTED: "the attempts of the budget were spent before another one",
    Code.UNAVAILABLE: "its handler function could not be reached; no attempt was spent",
    Code.WORKER_SHUTDOWN: "its worker was stopping and gave it back; no attempt was spent",
}


def failure_of(code: str | None, last: Attempt | None) -> Failure | None:
    """The failure of a stored code: the last attempt's error if it has this code, else rdq's own
    text for it.
    """
    if code is None:
        return None
    if last is not None and last.error is not None and last.error.code == code:
        return Failure(code, last.error.type, last.error.message)
    return Failure(code, TYPE_OF_CODE.get(code), _MESSAGES.get(code))
