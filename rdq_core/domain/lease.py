"""Leases: the right of one holder to settle a task, until when, and what fences off all others.

claim ─────────────── lease_expires_at       a heartbeat moves this end, only ever forward
  │ held: the token is     │ lapsed: the token is still the task's, so a late outcome
  │ the task's             │ counts, until a reclaim replaces the token
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from rdq_core.domain.task import Task


def claim_id_of(token: str) -> str:
    """The public name of a claim: it identifies the claim's records without revealing its token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A lease about to be taken: a fresh random token, when it is taken and when it ends.

    It is made once and sent unchanged when the write is repeated, so that a success whose answer
    was lost is recognised as ours. `hands_over` when the claim is for a function to adopt.
    """

    token: str
    now: datetime
    lease_expires_at: datetime
    hands_over: bool = False

    @property
    def claim_id(self) -> str:
        """The claim's public name, under which its attempt record is stored."""
        return claim_id_of(self.token)


@dataclass(frozen=True, slots=True)
class Unreached:
    """How often in a row, and since when, a task's function was not reached. None of these times
    is an attempt.

    `unadopted` counts the times it was handed the claim and never adopted it.
    """

    times: int
    since: datetime
    unadopted: int = 0


def once_more(before: Unreached | None, now: datetime, *, handed_over: bool = False) -> Unreached:
    """The record after the function was not reached once more, at `now`."""
    before = before or Unreached(0, now)
    return Unreached(before.times + 1, before.since, before.unadopted + handed_over)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease that was taken, with the task as it was then.

    `token` is opaque and secret; every write after the claim carries it. `fencing_token` only ever
    grows for an id, so that other systems can refuse an older holder. `history_length` counts the
    attempts on record, `last_attempt` is the store's own handle on the newest, `life`
    distinguishes this task from an earlier one of the same id. `handed_over` when the claim is for
    a function that hasn't adopted it yet; `unreached` records the times before that failed.
    """

    task: Task
    token: str
    fencing_token: int
    claimed_at: datetime
    lease_expires_at: datetime
    history_length: int = 0
    last_attempt: str | None = None
    life: str = ""
    handed_over: bool = False
    unreached: Unreached | None = None

    @property
    def attempt_no(self) -> int:
        """The number of this claim's attempt: from the history, never from the budget."""
        return self.history_length + 1

    @property
    def claim_id(self) -> str:
        """The claim's public name, under which its attempt record is stored."""
        return claim_id_of(self.token)
