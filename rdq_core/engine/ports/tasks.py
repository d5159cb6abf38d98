"""The storage of tasks, verb by verb. `MemoryStore` is the reference implementation.

A `TaskStore` raises `LeaseLost` when the caller's claim is no longer the task's (nothing was
changed: stop the work), `TaskConflict` or `TaskNotFound` when a request does not fit the task's
state, and `StoreFailed` when storage did not answer.
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
    """A stored task. `created` is False when it was there already; it is unchanged then."""

    task: Task
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An index entry of a task that may be claimed. It may be outdated: the claim's condition
    decides.

    `due_at` is when the task becomes claimable: at the next attempt of a waiting task, at the end
    of a claimed task's lease.
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
    """Some items. `next` is the store's own handle on the next page, None after the last one."""

    items: Sequence[T_co]
    next: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """The numbers of a queue's waiting, running and dead tasks, and since when the oldest is due.

    `exact` is False when counting stopped at its bound: the numbers are lower bounds then.
    """

    pending: int
    in_flight: int
    dead: int
    oldest_due_at: datetime | None
    exact: bool


class KeyBusy(Enum):
    """What a claim returns when another task holds its concurrency key. Nothing was changed."""

    KEY_BUSY = "key busy"


KEY_BUSY = KeyBusy.KEY_BUSY


class OrphanKind(StrEnum):
    """What a removed task can leave behind."""

    ATTEMPT = "attempts"
    ENTRY = "entries"
    BODY = "bodies"
    RESULT = "results"
    OBJECT = "objects"


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """The numbers of one page: items `examined`, orphans `found`, and of those the `removed` ones.

    `next` is the store's own handle on the next page, None after the last one.
    """

    examined: Counter[OrphanKind]
    found: Counter[OrphanKind]
    removed: Counter[OrphanKind]
    next: Any = None


class Orphans(Protocol):
    """Deletes what removed tasks have left behind. Nothing of a live task is ever touched."""

    def clean_up(self, record: Mapping[str, Any]) -> None:
        """Delete what the state row in a stream record has left behind. Other records change
        nothing.

        Records may come late, twice and in any order.
        """
        ...

    def collect_orphans(self, *, after: Any = None, dry_run: bool) -> OrphanReport:
        """Examine one page of all that is stored, and delete what is proved to be an orphan."""
        ...


class TaskStore(Orphans, Protocol):
    """Stores tasks. Each verb is atomic: it happens whole, with its history, or not at all."""

    # -- submitting --------------------------------------------------------------------------------

    def submit(self, task: Task, *, shards: int) -> Submission:
        """Store a new task, due at its `next_attempt_at` or at once, with the failures already in
        its `attempts`.

        If the id exists in the same queue, the stored task is returned unchanged, whatever its
        state; a task whose retention has ended counts as absent. Raises TaskConflict when the id
        exists in another queue, and InputInvalid, before anything is written, for bodies too large
        for this store. `shards` is the queue's `index_shards`.
        """
        ...

    def submit_many(
        self, tasks: Sequence[Task], *, shards_of: Callable[[str], int]
    ) -> list[Submission | RdqError]:
        """`submit` for many, several at a time: what each returned or raised, in their order.

        Each task is stored or refused by itself, and all of it is safe to repeat. Once storage has
        failed, the remaining tasks are not tried, and their errors say so. `shards_of` returns a
        queue's `index_shards`.
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
        """Lease a waiting task. None when its row no longer matches the index entry: another host
        was faster, and nothing was changed.

        Raises CorruptItem when this version can't read the row, which stays as it is.
        """
        ...

    def claim_keyed(self, candidate: Candidate, grant: Grant) -> Claim | KeyBusy | None:
        """Lease a waiting task together with its concurrency key. KEY_BUSY when the key is held:
        exactly as long as a task of it is in flight, lapsed or not. Else as `claim`.
        """
        ...

    def renew(self, candidate: Candidate, *, now: datetime) -> None:
        """Postpone the expiry of what a long overdue task keeps outside of its row.

        The task itself stays as it is. Raises CorruptItem when its row can't be read.
        """
        ...

    def lapsed(self, candidate: Candidate, *, now: datetime) -> Claim | None:
        """The claim that holds a task although its lease has ended; None when there is none."""
        ...

    def load(self, claim: Claim) -> Task:
        """The claimed task with its payload, headers and all else that may live outside the row.

        Raises CorruptItem when a part is missing: it is never replaced by an empty payload.
        """
        ...

    def reclaim(self, lapsed: Claim, attempt: Attempt, grant: Grant) -> Claim | None:
        """Lease a task whose holder let its lease lapse. `attempt` becomes history in the same
        write. None when another host was faster.
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
        """Dead-letter a task whose lapsed lease spent the last of its budget. False when another
        host was faster.
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
        """Release a task that was handed over and never adopted: no budget is spent, no attempt
        recorded.

        False when another host, or the function itself, was faster. `grant` marks the write, and
        leases nothing.
        """
        ...

    # -- by the holder of a claim: LeaseLost when the token is not the present one -----------------

    def adopt(self, task_id: str, token: str, grant: Grant) -> Claim:
        """Take over the handed-over claim of this token, under a new token and the same fencing
        token.
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
        """Succeeded: store the result, and the attempt as the last of the history."""
        ...

    def reschedule(
        self, claim: Claim, attempt: Attempt, failure: Failure, *, due_at: datetime
    ) -> None:
        """Failed, and due again at `due_at`."""
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
        """Failed for good. `attempt` is None when the handler was not run."""
        ...

    def release(
        self,
        claim: Claim,
        failure: Failure,
        *,
        due_at: datetime,
        unreached: Unreached | None = None,
    ) -> None:
        """Give the claim back: no budget is spent and no attempt recorded. `unreached` is kept for
        the next claim.
        """
        ...

    # -- without a claim ---------------------------------------------------------------------------

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
        """Make a dead task due now, with a full budget and its history kept. Raises TaskConflict
        when it is not dead since the entry's `dead_at`.
        """
        ...

    def purge(self, entry: DeadEntry, *, now: datetime, op_id: str) -> None:
        """Remove a dead task with all it has. Raises TaskConflict as `redrive` does."""
        ...

    def forget(self, reference: Reference, *, now: datetime) -> int:
        """Remove every task of a target or requester that was submitted by now, in any status, with
        all it has; their number.

        A submit that is under way meanwhile is refused with TaskConflict, or found by the next
        claim; what is submitted later stays. Safe to repeat after StoreFailed, whenever it came.
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
        """At most `limit` entries of a queue's DLQ, oldest death first. Over all pages, each entry
        that stays is listed once. `next` is plain JSON data.
        """
        ...

    def counts(self, queue: str) -> QueueCounts:
        """The numbers of the queue's tasks."""
        ...
