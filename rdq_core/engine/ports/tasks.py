"""Where tasks live, verb by verb. `MemoryStore` is the reference.

Three families of errors come out of a `TaskStore`: `LeaseLost` when the caller's claim is not the
present one (nothing was changed, nothing will be: stop the work), `TaskConflict` or `TaskNotFound`
when a person's request does not fit the state, and `StoreFailed` when storage did not answer.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, Generic, Protocol, TypeVar

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lease import Claim, Grant, Unreached
from rdq_core.domain.lifecycle import Edit, Result
from rdq_core.domain.references import Reference
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.errors import RdqError

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Submission:
    """A stored task, and whether this submit stored it (False: it was there already, and is
    unchanged).
    """

    task: Task
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An index entry that proposes a task for a claim. It may be outdated: the claim's condition
    decides.

    `due_at` is when it becomes claimable: the next attempt of a waiting task, the lease's end of a
    claimed one.
    """

    task_id: str
    queue: str
    due_at: datetime
    status: Status
    fencing_token: int
    handler_ref: str
    concurrency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T_co]):
    """Some items and where to go on: `next` is the store's own handle, None after the last page."""

    items: Sequence[T_co]
    next: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """How many tasks of a queue wait, run and rest in the DLQ, and since when the oldest is due.

    `exact` is False where counting stopped at its bound: the numbers are then lower bounds.
    """

    pending: int
    in_flight: int
    dead: int
    oldest_due_at: datetime | None
    exact: bool


class KeyBusy(Enum):
    """The answer to a claim whose concurrency key another task holds. Nothing was changed, and no
    attempt is spent.
    """

    KEY_BUSY = "key busy"


KEY_BUSY = KeyBusy.KEY_BUSY


class Kind(StrEnum):
    """What a task that is gone can leave behind."""

    ATTEMPT = "attempts"
    ENTRY = "entries"
    BODY = "bodies"
    RESULT = "results"
    OBJECT = "objects"


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """One page of what was looked at, in numbers: `found` are nobody's, `removed` those of them
    that were deleted.

    `next` is the store's own handle, None after the last page.
    """

    examined: Counter[Kind]
    found: Counter[Kind]
    removed: Counter[Kind]
    next: Any = None


class Orphans(Protocol):
    """What tasks that are gone have left behind. Nothing of a live task is ever touched."""

    def clean_up(self, record: Mapping[str, Any]) -> None:
        """Delete what the state row that a stream record tells of leaves behind. Others change
        nothing.

        Records may come late, twice and in any order.
        """
        ...

    def collect_orphans(self, *, after: Any = None, dry_run: bool) -> OrphanReport:
        """Look through one page of all that is stored, and delete what is proved to be nobody's."""
        ...


class TaskStore(Orphans, Protocol):
    """Where tasks live. Each verb is atomic: it happens whole, with its history, or not at all."""

    # -- submitting --------------------------------------------------------------------------------

    def submit(self, task: Task, *, shards: int) -> Submission:
        """Store a new task, due at its `next_attempt_at` or at once, with the failures it already
        has in `attempts`.

        An id that exists in the same queue gives the stored task back, untouched, however far it
        has got; one whose retention is over counts as absent. In another queue: TaskConflict.
        Bodies too large for this store: InputInvalid, before anything is written. `shards` is the
        queue's `index_shards`.
        """
        ...

    def submit_many(
        self, tasks: Sequence[Task], *, shards_of: Callable[[str], int]
    ) -> list[Submission | RdqError]:
        """`submit` for many, several at a time: what each would have answered or raised, in their
        order.

        No task keeps another out, and all of it is safe to repeat. Once storage has failed, tasks
        whose turn had not come are not tried, and say so. `shards_of` gives a queue's
        `index_shards`.
        """
        ...

    # -- claiming ----------------------------------------------------------------------------------

    def candidates(
        self, queue: str, shard: int, *, until: datetime, limit: int, after: Any = None
    ) -> Page[Candidate]:
        """Tasks of one shard that become claimable by `until`, oldest due first, at most `limit` of
        them read.
        """
        ...

    def claim(self, candidate: Candidate, grant: Grant) -> Claim | None:
        """Lease a waiting task. None when it is no longer as the index said: somebody was faster,
        and nothing changed.

        Raises CorruptItem when the row can't be read by this version; the row is left as it is.
        """
        ...

    def claim_keyed(self, candidate: Candidate, grant: Grant) -> Claim | KeyBusy | None:
        """Lease a waiting task that has a concurrency key, together with the key's slot.

        A key is held exactly as long as a task of it is in flight, lapsed or not: KEY_BUSY then.
        Else as `claim`.
        """
        ...

    def renew(self, candidate: Candidate, *, now: datetime) -> None:
        """Let what a long overdue task carries outside of its row live on, although nobody claims
        it.

        The task itself stays as it is. Raises CorruptItem when its row can't be read.
        """
        ...

    def lapsed(self, candidate: Candidate, *, now: datetime) -> Claim | None:
        """The claim that still holds a task though its lease has ended; None when nobody's lapsed
        claim does.
        """
        ...

    def load(self, claim: Claim) -> Task:
        """The claimed task with its payload, headers and whatever else may live outside the row.

        Raises CorruptItem when a part is missing: an empty payload is never made up.
        """
        ...

    def reclaim(self, lapsed: Claim, attempt: Attempt, grant: Grant) -> Claim | None:
        """Lease a task anew whose holder let its lease lapse. `attempt` becomes history in the same
        write.
        """
        ...

    def dead_letter_lapsed(
        self,
        lapsed: Claim,
        attempt: Attempt,
        failure: Failure,
        grant: Grant,
        *,
        fingerprint: str,
        expires_at: datetime | None,
    ) -> bool:
        """Dead-letter a task whose lapsed lease spent the last of its budget. False when somebody
        was faster.
        """
        ...

    def release_lapsed(
        self,
        lapsed: Claim,
        failure: Failure,
        grant: Grant,
        *,
        due_at: datetime,
        unreached: Unreached,
    ) -> bool:
        """Give back a task that was handed over and never adopted: no budget is spent, no attempt
        recorded.

        False when somebody was faster, the function itself included. `grant` marks the write, and
        leases nothing.
        """
        ...

    # -- by the holder of a claim: LeaseLost when the token is not the present one -----------------

    def adopt(self, task_id: str, token: str, grant: Grant) -> Claim:
        """Take over the claim of this token, which was handed over: under a new token, with the
        same fence.
        """
        ...

    def heartbeat(self, claim: Claim, lease_expires_at: datetime) -> None:
        """Hold the claim until then; never shortens it."""
        ...

    def complete(
        self,
        claim: Claim,
        attempt: Attempt,
        result: Result,
        *,
        now: datetime,
        expires_at: datetime | None,
    ) -> None:
        """Succeeded: the result is stored, the attempt becomes the last of the history."""
        ...

    def reschedule(
        self, claim: Claim, attempt: Attempt, failure: Failure, *, due_at: datetime
    ) -> None:
        """Failed, and to be tried again at `due_at`."""
        ...

    def dead_letter(
        self,
        claim: Claim,
        attempt: Attempt | None,
        failure: Failure,
        *,
        now: datetime,
        fingerprint: str,
        expires_at: datetime | None,
    ) -> None:
        """Failed for good. `attempt` is None where the budget was found spent before the handler
        ran.
        """
        ...

    def release(
        self,
        claim: Claim,
        failure: Failure,
        *,
        due_at: datetime,
        unreached: Unreached | None = None,
    ) -> None:
        """Give the claim back: no budget is spent and no attempt recorded. The next claim learns of
        `unreached`.
        """
        ...

    # -- by anybody --------------------------------------------------------------------------------

    def cancel(
        self, task_id: str, *, now: datetime, op_id: str, expires_at: datetime | None
    ) -> Task:
        """Stop a waiting or claimed task. TaskConflict names the state of a terminal one.

        `expires_at` comes from the queue's `task_ttl`. `op_id` marks the write as this request's.
        """
        ...

    def redrive(
        self, entry: DeadEntry, edit: Edit, *, now: datetime, op_id: str, shards: int
    ) -> Task:
        """Send a dead task back: due now, full budget, history kept. TaskConflict when it is not
        dead since `dead_at`.
        """
        ...

    def purge(self, entry: DeadEntry, *, now: datetime, op_id: str) -> None:
        """Remove a dead task with all it has. TaskConflict when it is not dead since `dead_at`."""
        ...

    def forget(self, reference: Reference, *, now: datetime) -> int:
        """Remove every task of a target or requester that was submitted by now, in any status, with
        all it has.

        The answer is how many there were. A submit that is under way meanwhile is refused with
        TaskConflict or found by the next claim, and what is submitted later stays. Safe to repeat
        after StoreFailed, at whatever point that was.
        """
        ...

    # -- reading -----------------------------------------------------------------------------------

    def get(self, task_id: str) -> Task | None:
        """The whole task with its history, read consistently. None when absent or expired."""
        ...

    def dead_entry(self, task_id: str) -> DeadEntry | None:
        """The DLQ entry of a task, read consistently. None unless it is dead."""
        ...

    def bears_mark(self, task_id: str, op_id: str) -> bool:
        """Whether the last cancel or redrive of a task was this request's, read consistently."""
        ...

    def dead(self, queue: str, *, limit: int, after: Any = None) -> Page[DeadEntry]:
        """The DLQ of a queue, oldest death first, at most `limit` entries of it; each entry that
        stays is listed once over the pages. `next` is plain JSON data.
        """
        ...

    def counts(self, queue: str) -> QueueCounts:
        """How many tasks of the queue wait, run and are dead."""
        ...
