"""The right to settle a task: who was given it, until when, and what fences off everybody else.

claim ──────────── lease_expires_at          a heartbeat moves the right end, never to the left
  │   held: token is current   │   lapsed: token is still current, so a late outcome counts,
  │                            │   until somebody's reclaim replaces it
"""

from dataclasses import dataclass
from datetime import datetime

from rdq_core.domain import ids
from rdq_core.domain.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A lease about to be taken: a fresh random token, the moment it is taken and the moment it
    ends.

    It is made once and presented unchanged when the write is repeated, so that our own success is
    recognised. `hands_over`: whoever takes it passes the claim on to a function, which adopts it.
    """

    token: str
    now: datetime
    lease_expires_at: datetime
    hands_over: bool = False

    @property
    def claim_id(self) -> str:
        """The claim's public name, under which its records are stored."""
        return ids.claim_id(self.token)


@dataclass(frozen=True, slots=True)
class Unreached:
    """How often in a row, and since when, the function that handles a task was not reached: no
    attempts, no budget.

    `unadopted` of those times it was handed the claim and never took it.
    """

    times: int
    since: datetime
    unadopted: int = 0


def once_more(before: Unreached | None, now: datetime, *, handed_over: bool = False) -> Unreached:
    """What is known after the function was not reached now either."""
    before = before or Unreached(0, now)
    return Unreached(before.times + 1, before.since, before.unadopted + handed_over)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease that was taken, with the task as it was then.

    `token` is opaque and secret; every write after the claim presents it. `fencing_token` only ever
    grows for an id, so that other systems can refuse an older holder. `claimed_at` is when the work
    started. `history_length` counts the attempts on record, `last_attempt` is the store's own
    handle on the newest, `life` tells this task from an earlier one of the same id. `handed_over`:
    it is meant for a function, which hasn't adopted it; `unreached` is how that went before.
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
        """The number of the attempt that this claim makes: from the history, never from the budget."""
        return self.history_length + 1

    @property
    def claim_id(self) -> str:
        """The claim's public name, under which its records are stored."""
        return ids.claim_id(self.token)
