"""The state machine of a task, as pure functions from one row to the next.

                     submit
                       │
                       ▼         reschedule, release
        ┌──────────► PENDING ◄────────────────┐
        │              │ │                    │
        │              │ └──────── claim ──► IN_FLIGHT ──┐ reclaim, adopt, heartbeat
        │              │                      │ │ │  ▲   │
        │              │ cancel        cancel │ │ │  └───┘
        │              ▼                      │ │ │ complete
        │          CANCELLED ◄────────────────┘ │ └──────────► SUCCEEDED
        │                                       │ dead-letter
        └─────────────── redrive ──── DEAD ◄────┘
                                       └── purge ──► gone            any ── forget ──► gone

The memory store applies these functions; other stores are compared with it, step by step. The
invariant: only the holder of the current token settles a claim, and the fencing token never
decreases.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.lease import Grant, Unreached
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.domain.times import to_millis
from rdq_core.errors import LeaseLost, StoreFailed, TaskConflict


class Verb(StrEnum):
    """The transitions of a stored task."""

    CLAIM = "claim"
    RECLAIM = "reclaim"
    ADOPT = "adopt"
    HEARTBEAT = "heartbeat"
    COMPLETE = "complete"
    RESCHEDULE = "reschedule"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"
    CANCEL = "cancel"
    REDRIVE = "redrive"
    PURGE = "purge"


def allowed(status: Status) -> frozenset[Verb]:
    """The verbs that are allowed in this status. Forgetting, which is allowed in any, is not
    listed.
    """
    match status:
        case Status.PENDING:
            return frozenset({Verb.CLAIM, Verb.CANCEL})
        case Status.IN_FLIGHT:
            return frozenset(
                {
                    Verb.RECLAIM,
                    Verb.ADOPT,
                    Verb.HEARTBEAT,
                    Verb.COMPLETE,
                    Verb.RESCHEDULE,
                    Verb.DEAD_LETTER,
                    Verb.RELEASE,
                    Verb.CANCEL,
                }
            )
        case Status.DEAD:
            return frozenset({Verb.REDRIVE, Verb.PURGE})
        case Status.SUCCEEDED | Status.CANCELLED:
            return frozenset()
    assert_never(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A task with what never leaves the store.

    `life` is a nonce that distinguishes this task from an earlier one of the same id. `token` is
    the current claim's, None while no worker holds the task. `expires_at` is when the row ceases to
    exist, None while it must not. `handed_over` and `unreached` are as in `Claim`.
    """

    task: Task
    life: str
    fencing_token: int
    token: str | None = None
    claimed_at: datetime | None = None
    expires_at: datetime | None = None
    handed_over: bool = False
    unreached: Unreached | None = None

    def is_gone(self, now: datetime) -> bool:
        """Whether the row's retention has ended. It then counts as absent, whether TTL has removed
        it or not.
        """
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What a redrive changes about a task; None changes nothing. `unpin` removes the version."""

    handler_ref: str | None = None
    handler_version: str | None = None
    unpin: bool = False
    payload: bytes | None = None
    payload_content_type: str | None = None


NO_EDIT = Edit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a handler returned, encoded. `content` is None when it returned nothing."""

    content: bytes | None = None
    content_type: str | None = None


NO_RESULT = Result()


def submitted(task: Task, *, life: str, now: datetime) -> Row:
    """A new row. Its fencing token starts at the submit time in milliseconds, so that it grows even
    when an id is used again.
    """
    fresh = replace(
        task,
        status=Status.PENDING,
        attempt_count=0,
        redrive_count=0,
        next_attempt_at=task.next_attempt_at or now,
        lease_expires_at=None,
        created_at=now,
        completed_at=None,
        failure=None,
        result=None,
        result_content_type=None,
    )
    return Row(task=fresh, life=life, fencing_token=to_millis(now))


def claimed(row: Row, grant: Grant) -> Row:
    """Claimed. Raises LeaseLost for a row that is not waiting or not yet due."""
    if Verb.CLAIM not in allowed(row.task.status) or not row.task.is_due(grant.now):
        raise lost(row.task.id, Verb.CLAIM)
    return _leased(row, row.task, grant)


def reclaimed(row: Row, seen_token: str, attempt: Attempt, grant: Grant) -> Row:
    """Reclaimed from a holder whose lease has lapsed, with its attempt added to the history."""
    _require_lapsed(row, Verb.RECLAIM, seen_token, grant.now)
    return _leased(row, _with_attempt(row.task, attempt), grant)


def adopted(row: Row, token: str, grant: Grant) -> Row:
    """Adopted by the function that the claim was handed to, under a new token, so that only one of
    two deliveries of the hand-over succeeds.
    """
    _require_holder(row, Verb.ADOPT, token)
    task = replace(row.task, lease_expires_at=grant.lease_expires_at)
    return replace(
        row, task=task, token=grant.token, claimed_at=grant.now, handed_over=False, unreached=None
    )


def heartbeat(row: Row, token: str, lease_expires_at: datetime) -> Row:
    """The lease extended; never shortened."""
    _require_holder(row, Verb.HEARTBEAT, token)
    held_until = max(lease_expires_at, row.task.lease_expires_at or lease_expires_at)
    return replace(row, task=replace(row.task, lease_expires_at=held_until))


def completed(
    row: Row,
    token: str,
    attempt: Attempt,
    result: Result,
    *,
    now: datetime,
    expires_at: datetime | None,
) -> Row:
    """Succeeded, with the result and the success as the last attempt."""
    _require_holder(row, Verb.COMPLETE, token)
    task = replace(
        _with_attempt(row.task, attempt),
        status=Status.SUCCEEDED,
        completed_at=now,
        failure=None,
        result=result.content,
        result_content_type=result.content_type,
    )
    return _settled(row, task, expires_at=expires_at)


def rescheduled(
    row: Row, token: str, attempt: Attempt, failure: Failure, *, due_at: datetime
) -> Row:
    """Waiting for the next attempt after a failed one."""
    _require_holder(row, Verb.RESCHEDULE, token)
    task = replace(
        _with_attempt(row.task, attempt),
        status=Status.PENDING,
        next_attempt_at=due_at,
        failure=failure,
    )
    return _settled(row, task)


def dead_lettered(
    row: Row,
    token: str,
    attempt: Attempt | None,
    failure: Failure,
    *,
    now: datetime,
    expires_at: datetime | None,
) -> Row:
    """Dead. `attempt` is None when the handler was not run: there is nothing to record then."""
    _require_holder(row, Verb.DEAD_LETTER, token)
    spent = row.task if attempt is None else _with_attempt(row.task, attempt)
    return _settled(
        row,
        replace(spent, status=Status.DEAD, completed_at=now, failure=failure),
        expires_at=expires_at,
    )


def dead_lettered_lapsed(
    row: Row,
    seen_token: str,
    attempt: Attempt,
    failure: Failure,
    *,
    now: datetime,
    expires_at: datetime | None,
) -> Row:
    """Dead, because a lapsed lease spent the last of the budget."""
    _require_lapsed(row, Verb.DEAD_LETTER, seen_token, now)
    return dead_lettered(row, seen_token, attempt, failure, now=now, expires_at=expires_at)


def released(
    row: Row, token: str, failure: Failure, *, due_at: datetime, unreached: Unreached | None = None
) -> Row:
    """Given back, with no budget spent and no attempt on record."""
    _require_holder(row, Verb.RELEASE, token)
    task = replace(row.task, status=Status.PENDING, next_attempt_at=due_at, failure=failure)
    return replace(_settled(row, task), unreached=unreached)


def released_lapsed(
    row: Row,
    seen_token: str,
    failure: Failure,
    *,
    now: datetime,
    due_at: datetime,
    unreached: Unreached,
) -> Row:
    """Given back for a function that was handed the claim and never adopted it."""
    _require_lapsed(row, Verb.RELEASE, seen_token, now)
    if not row.handed_over:
        raise lost(row.task.id, Verb.RELEASE)
    return released(row, seen_token, failure, due_at=due_at, unreached=unreached)


def cancelled(row: Row, *, now: datetime, expires_at: datetime | None) -> Row:
    """Cancelled. A handler that is running finds its lease lost."""
    _require(row, Verb.CANCEL)
    return _settled(
        row, replace(row.task, status=Status.CANCELLED, completed_at=now), expires_at=expires_at
    )


def redriven(row: Row, edit: Edit, *, now: datetime) -> Row:
    """Due now, with a full budget and its history; the dead row's retention no longer applies."""
    _require(row, Verb.REDRIVE)
    task = replace(
        edited(row.task, edit),
        status=Status.PENDING,
        attempt_count=0,
        redrive_count=row.task.redrive_count + 1,
        next_attempt_at=now,
        completed_at=None,
    )
    return replace(row, task=task, expires_at=None)


def edited(task: Task, edit: Edit) -> Task:
    """The task with a redrive's changes."""
    version = None if edit.unpin else edit.handler_version or task.handler_version
    return replace(
        task,
        handler_ref=edit.handler_ref or task.handler_ref,
        handler_version=version,
        payload=task.payload if edit.payload is None else edit.payload,
        payload_content_type=edit.payload_content_type or task.payload_content_type,
    )


def conflict(task_id: str, status: Status, verb: Verb) -> TaskConflict:
    """The error of a verb that the task's status doesn't allow."""
    return TaskConflict(f"task {task_id} is {status}, so it cannot undergo {verb}", task_id=task_id)


def not_tried(task_id: str | None) -> StoreFailed:
    """The error for one of many tasks that were left when storage failed for an earlier one."""
    return StoreFailed(
        "not tried, because storage had failed for an earlier task",
        may_have_happened=False,
        task_id=task_id,
    )


def lost(task_id: str, verb: Verb) -> LeaseLost:
    """The error of a write by a caller that no longer holds the task."""
    return LeaseLost(
        f"the claim on task {task_id} is no longer held, so {verb} changed nothing", task_id=task_id
    )


def _leased(row: Row, task: Task, grant: Grant) -> Row:
    held = replace(
        task,
        status=Status.IN_FLIGHT,
        next_attempt_at=None,
        lease_expires_at=grant.lease_expires_at,
        failure=None,
    )
    return replace(
        row,
        task=held,
        token=grant.token,
        fencing_token=row.fencing_token + 1,
        claimed_at=grant.now,
        handed_over=grant.hands_over,
    )


def _settled(row: Row, task: Task, *, expires_at: datetime | None = None) -> Row:
    waiting = task.status is Status.PENDING
    loose = replace(
        task, lease_expires_at=None, next_attempt_at=task.next_attempt_at if waiting else None
    )
    return replace(
        row,
        task=loose,
        token=None,
        claimed_at=None,
        expires_at=expires_at,
        handed_over=False,
        unreached=None,
    )


def _with_attempt(task: Task, attempt: Attempt) -> Task:
    return replace(task, attempts=(*task.attempts, attempt), attempt_count=task.attempt_count + 1)


def _require(row: Row, verb: Verb) -> None:
    if verb not in allowed(row.task.status):
        raise conflict(row.task.id, row.task.status, verb)


def _require_holder(row: Row, verb: Verb, token: str) -> None:
    if verb not in allowed(row.task.status) or row.token is None or row.token != token:
        raise lost(row.task.id, verb)


def _require_lapsed(row: Row, verb: Verb, token: str, now: datetime) -> None:
    _require_holder(row, verb, token)
    if row.task.lease_expires_at is not None and row.task.lease_expires_at > now:
        raise lost(row.task.id, verb)
