"""Factories that take only the fields a test is about."""

import random
import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

from rdq_core.domain.attempt import Attempt, AttemptError, Code, Outcome
from rdq_core.domain.ids import encode_id
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.task import Failure, Task, failure_of
from rdq_core.testing.clock import NOON

QUEUE: Final = "billing"
NOW: Final = datetime(2035, 7, 20, 12, tzinfo=UTC)
"""The present of what has no clock that tests move: ahead of real ones, by which engines remove
what has expired.
"""
_ids = count(1)


def a_task_id() -> str:
    """An id that no other test of this process uses."""
    return encode_id(next(_ids))


def a_task(**fields: Any) -> Task:
    """A task that is due at once, in the queue `billing`; its payload is text that few bytes are
    too much for.
    """
    usual = {
        "id": a_task_id(),
        "queue": QUEUE,
        "handler_ref": "charge-card",
        "payload": b'{"order": 17}',
        "payload_content_type": "application/json",
        "created_at": NOON,
    }
    return Task(**{**usual, **fields})


def a_grant(
    now: datetime,
    *,
    lease: timedelta = timedelta(minutes=1),
    token: str | None = None,
    hands_over: bool = False,
) -> Grant:
    """A lease under a token that is unique across processes."""
    return Grant(
        token=token or secrets.token_urlsafe(16),
        now=now,
        lease_expires_at=now + lease,
        hands_over=hands_over,
    )


def an_error(message: str = "503 from the bank", **fields: Any) -> AttemptError:
    """An ordinary error."""
    return AttemptError(**{"type": "requests.HTTPError", "message": message, **fields})


def a_failed(claim: Claim, now: datetime, **fields: Any) -> Attempt:
    """A failed attempt of this claim, which ended now."""
    usual: dict[str, Any] = {
        "attempt_no": claim.attempt_no,
        "started_at": claim.claimed_at,
        "finished_at": now,
        "outcome": Outcome.RETRYABLE_FAILURE,
        "error": an_error(),
        "worker": "host:1",
        "fencing_token": claim.fencing_token,
    }
    return Attempt(**{**usual, **fields})


def a_success(claim: Claim, now: datetime, **fields: Any) -> Attempt:
    """A successful attempt of this claim, which ended now."""
    return a_failed(claim, now, **{"outcome": Outcome.SUCCESS, "error": None, **fields})


def a_lapse(lapsed: Claim) -> Attempt:
    """An attempt whose lease lapsed without a report."""
    error = AttemptError(
        type="rdq.LeaseExpired",
        code=Code.LEASE_EXPIRED,
        message="the lease ended without an outcome",
    )
    return a_failed(
        lapsed, lapsed.claimed_at, finished_at=None, outcome=Outcome.LEASE_EXPIRED, error=error
    )


def a_failure(attempt: Attempt | None = None, code: str = Code.ATTEMPTS_EXHAUSTED) -> Failure:
    """The failure that a failed attempt leaves on the task; without an attempt, the code's own
    message.
    """
    failure = failure_of(
        code if attempt is None or attempt.error is None else attempt.error.code, attempt
    )
    assert failure is not None
    return failure


def a_result(
    content: bytes | None = b'"done"', content_type: str | None = "application/json"
) -> Result:
    """What a handler returned."""
    return Result(content=content, content_type=content_type)


def under_token(claim: Claim, token: str) -> Claim:
    """The same claim under another token."""
    return replace(claim, token=token)


def noise(size: int) -> bytes:
    """Bytes that do not compress, the same ones each time."""
    return random.Random(size).randbytes(size)
