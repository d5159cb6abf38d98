"""What the engine needs from outside, as it would be read aloud. Stores and hosts implement it; their names are final.

Three families of errors come out of a `TaskStore`: `LeaseLost` when the caller's claim is not the present one
(nothing was changed, nothing will be: stop the work), `TaskConflict` or `TaskNotFound` when a person's request does
not fit the state, and `StoreFailed` when storage did not answer.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rdq_core.config.settings import QueueSettings, RateLimit
from rdq_core.config.stored import Override, StoredQueue
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.job import Job
from rdq_core.domain.lease import Claim, Grant, Unreached
from rdq_core.domain.lifecycle import Edit, Result
from rdq_core.domain.outcome import OutcomeMapper
from rdq_core.domain.references import Reference
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.engine.events import Event
from rdq_core.errors import RdqError

if TYPE_CHECKING:
    from rdq_core.engine.context import TaskContext
    from rdq_core.engine.reconcile import Repair

T_co = TypeVar("T_co", covariant=True)


class Clock(Protocol):
    """Time. Whoever decides what is due asks here, so tests move time instead of waiting."""

    def now(self) -> datetime:
        """The present moment: aware, UTC, cut to milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that is never set, for measuring durations."""
        ...


class Jitter(Protocol):
    """Chance, for spreading retries."""

    def fraction(self) -> float:
        """A number from -1 to 1."""
        ...


class Sleeper(Protocol):
    """Waiting that something can cut short."""

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Wait until `wake` is set or the time is over; True when it was set."""
        ...


class IdSource(Protocol):
    """Fresh names that nobody else has or can guess."""

    def task_id(self) -> str:
        """A new ULID."""
        ...

    def token(self) -> str:
        """A random token of at least 122 bits."""
        ...

    def nonce(self) -> str:
        """A random name of at least 64 bits, for records of which nobody else may write the key."""
        ...


@dataclass(frozen=True, slots=True)
class Submission:
    """A stored task, and whether this submit stored it (False: it was there already, and is unchanged)."""

    task: Task
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An index entry that proposes a task for a claim. It may be outdated: the claim's condition decides.

    `due_at` is when it becomes claimable: the next attempt of a waiting task, the lease's end of a claimed one.
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
    """The answer to a claim whose concurrency key another task holds. Nothing was changed, and no attempt is spent."""

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
class Leavings:
    """One page of what was looked at, in numbers: `found` are nobody's, `removed` those of them that were deleted.

    `next` is the store's own handle, None after the last page.
    """

    examined: Counter[Kind]
    found: Counter[Kind]
    removed: Counter[Kind]
    next: Any = None


class Remains(Protocol):
    """What tasks that are gone have left behind. Nothing of a live task is ever touched."""

    def clean_up(self, record: Mapping[str, Any]) -> None:
        """Delete what the state row that a stream record tells of leaves behind. Others change nothing.

        Records may come late, twice and in any order.
        """
        ...

    def leavings(self, *, after: Any = None, dry_run: bool) -> Leavings:
        """Look through one page of all that is stored, and delete what is proved to be nobody's."""
        ...


class TaskStore(Remains, Protocol):
    """Where tasks live. Each verb is atomic: it happens whole, with its history, or not at all."""

    # -- submitting ---------------------------------------------------------------------------------------------

    def submit(self, task: Task, *, shards: int) -> Submission:
        """Store a new task, due at its `next_attempt_at` or at once, with the failures it already has in `attempts`.

        An id that exists in the same queue gives the stored task back, untouched, however far it has got; one whose
        retention is over counts as absent. In another queue: TaskConflict. Bodies too large for this store:
        InputInvalid, before anything is written. `shards` is the queue's `index_shards`.
        """
        ...

    def submit_many(self, tasks: Sequence[Task], *, shards_of: Callable[[str], int]) -> list[Submission | RdqError]:
        """`submit` for many, several at a time: what each would have answered or raised, in their order.

        No task keeps another out, and all of it is safe to repeat. Once storage has failed, tasks whose turn had not
        come are not tried, and say so. `shards_of` gives a queue's `index_shards`.
        """
        ...

    # -- claiming -----------------------------------------------------------------------------------------------

    def candidates(self, queue: str, shard: int, *, until: datetime, limit: int, after: Any = None) -> Page[Candidate]:
        """Tasks of one shard that become claimable by `until`, oldest due first, at most `limit` of them read."""
        ...

    def claim(self, candidate: Candidate, grant: Grant) -> Claim | None:
        """Lease a waiting task. None when it is no longer as the index said: somebody was faster, and nothing changed.

        Raises CorruptItem when the row can't be read by this version; the row is left as it is.
        """
        ...

    def claim_keyed(self, candidate: Candidate, grant: Grant) -> Claim | KeyBusy | None:
        """Lease a waiting task that has a concurrency key, together with the key's slot.

        A key is held exactly as long as a task of it is in flight, lapsed or not: KEY_BUSY then. Else as `claim`.
        """
        ...

    def renew(self, candidate: Candidate, *, now: datetime) -> None:
        """Let what a long overdue task carries outside of its row live on, although nobody claims it.

        The task itself stays as it is. Raises CorruptItem when its row can't be read.
        """
        ...

    def lapsed(self, candidate: Candidate, *, now: datetime) -> Claim | None:
        """The claim that still holds a task though its lease has ended; None when nobody's lapsed claim does."""
        ...

    def load(self, claim: Claim) -> Task:
        """The claimed task with its payload, headers and whatever else may live outside the row.

        Raises CorruptItem when a part is missing: an empty payload is never made up.
        """
        ...

    def reclaim(self, lapsed: Claim, attempt: Attempt, grant: Grant) -> Claim | None:
        """Lease a task anew whose holder let its lease lapse. `attempt` becomes history in the same write."""
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
        """Dead-letter a task whose lapsed lease spent the last of its budget. False when somebody was faster."""
        ...

    def release_lapsed(
        self, lapsed: Claim, failure: Failure, grant: Grant, *, due_at: datetime, unreached: Unreached
    ) -> bool:
        """Give back a task that was handed over and never adopted: no budget is spent, no attempt recorded.

        False when somebody was faster, the function itself included. `grant` marks the write, and leases nothing.
        """
        ...

    # -- by the holder of a claim: LeaseLost when the token is not the present one --------------------------------

    def adopt(self, task_id: str, token: str, grant: Grant) -> Claim:
        """Take over the claim of this token, which was handed over: under a new token, with the same fence."""
        ...

    def heartbeat(self, claim: Claim, lease_expires_at: datetime) -> None:
        """Hold the claim until then; never shortens it."""
        ...

    def complete(
        self, claim: Claim, attempt: Attempt, result: Result, *, now: datetime, expires_at: datetime | None
    ) -> None:
        """Succeeded: the result is stored, the attempt becomes the last of the history."""
        ...

    def reschedule(self, claim: Claim, attempt: Attempt, failure: Failure, *, due_at: datetime) -> None:
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
        """Failed for good. `attempt` is None where the budget was found spent before the handler ran."""
        ...

    def release(self, claim: Claim, failure: Failure, *, due_at: datetime, unreached: Unreached | None = None) -> None:
        """Give the claim back: no budget is spent and no attempt recorded. The next claim learns of `unreached`."""
        ...

    # -- by anybody -----------------------------------------------------------------------------------------------

    def cancel(self, task_id: str, *, now: datetime, op_id: str, expires_at: datetime | None) -> Task:
        """Stop a waiting or claimed task. TaskConflict names the state of a terminal one.

        `expires_at` comes from the queue's `task_ttl`. `op_id` marks the write as this request's.
        """
        ...

    def redrive(self, entry: DeadEntry, edit: Edit, *, now: datetime, op_id: str, shards: int) -> Task:
        """Send a dead task back: due now, full budget, history kept. TaskConflict when it is not dead since
        `dead_at`.
        """
        ...

    def purge(self, entry: DeadEntry, *, now: datetime, op_id: str) -> None:
        """Remove a dead task with all it has. TaskConflict when it is not dead since `dead_at`."""
        ...

    def forget(self, reference: Reference, *, now: datetime) -> int:
        """Remove every task of a target or requester that was submitted by now, in any status, with all it has.

        The answer is how many there were. A submit that is under way meanwhile is refused with TaskConflict or found by
        the next claim, and what is submitted later stays. Safe to repeat after StoreFailed, at whatever point that was.
        """
        ...

    # -- reading ----------------------------------------------------------------------------------------------------

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
        """The DLQ of a queue, oldest death first, at most `limit` entries of it; each entry that stays is listed once
        over the pages. `next` is plain JSON data.
        """
        ...

    def counts(self, queue: str) -> QueueCounts:
        """How many tasks of the queue wait, run and are dead."""
        ...


class QueueSource(Protocol):
    """The queues' configuration as it is in force. A deleted queue counts as not configured."""

    def settings(self, queue: str, *, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """The settings of a queue, at most one second old for sweeps. QueueNotFound when it isn't configured.

        `definition` has the options that a typed task was defined with, as a layer: they stand below what is declared
        and above the defaults of its file. ConfigInvalid when they don't get along with what is declared.
        """
        ...

    def for_submits(self, queue: str) -> QueueSettings:
        """The settings of a queue, at most one minute old. Raises as `settings` does.

        What would refuse a submit, a queue that is unknown or being deleted, is never said from memory.
        """
        ...

    def all(self) -> Mapping[str, QueueSettings]:
        """Every configured queue, those being deleted included."""
        ...


class QueueStore(QueueSource, Protocol):
    """Where the queues' configuration is kept, layer by layer, each write under the revision that its writer has read.

    A layer that says already what is written keeps its revision, so every write is safe to repeat. Queues that a write
    doesn't name are never touched.

        declared ── begin_delete ──► deleting ── end_delete ──► tombstone ── reopen ──► deleting
            ▲                            │                          │
            └──────── put_declared ──────┴──────────────────────────┘
    """

    def stored(self, queue: str) -> StoredQueue | None:
        """The layers of a queue, or its tombstone, read consistently; None when there is neither. CorruptItem when
        unreadable.
        """
        ...

    def all_stored(self) -> Mapping[str, StoredQueue]:
        """The layers of every queue that can be read, as old as `settings`; tombstones too."""
        ...

    def put_declared(
        self, queue: str, declared: Mapping[str, Any], file_defaults: Mapping[str, Any], *, expected_revision: int
    ) -> StoredQueue:
        """Replace what is declared; override, pause and `shards_ever` survive. A new queue is at revision 0.

        A queue that is being deleted stays after all; of a deleted one only `shards_ever` and the revisions go on.
        Raises ConfigConflict, showing both versions, when somebody has written the layer since it was read,
        InputInvalid for a name that no queue can have, and ConfigInvalid for layers that contradict each other.
        """
        ...

    def put_owners(self, seen: StoredQueue, owners: tuple[str, ...]) -> bool:
        """Say which resources of templates declare a queue; False, and nothing changed, when it isn't as seen."""
        ...

    def put_override(self, queue: str, override: Override | None, *, expected_revision: int) -> StoredQueue:
        """Replace what people have set, None for nothing. Raises as `put_declared` does, and QueueNotFound."""
        ...

    def pause(self, queue: str, *, paused: bool, now: datetime, reason: str | None = None) -> StoredQueue:
        """Stop the queue's claims, or let them go on. Raises QueueNotFound."""
        ...

    def begin_delete(self, queue: str, *, now: datetime) -> StoredQueue:
        """Refuse submits from now on. A queue that is being deleted stays as it is. Raises QueueNotFound."""
        ...

    def note_look(self, seen: StoredQueue, *, now: datetime) -> bool:
        """Be the one who looks for tasks in a queue that is leaving. False when somebody else has looked since."""
        ...

    def end_delete(self, seen: StoredQueue, *, now: datetime) -> bool:
        """Leave a tombstone of a queue that was being deleted when it was seen. False when it isn't any more."""
        ...

    def reopen(self, seen: StoredQueue, *, now: datetime) -> bool:
        """Make a queue that is being deleted, from now on, of the tombstone seen. False when it has changed."""
        ...


class RateLimiter(Protocol):
    """A limit that all sweepers of a queue share."""

    def take(self, queue: str, wanted: int, limit: RateLimit, *, now: datetime) -> int:
        """How many of `wanted` starts are allowed now: 0 to `wanted`. They are spent."""
        ...


class Wakefulness(Protocol):
    """Which queues have a sweep that looks at every shard at least each second, so that nobody needs to start one."""

    def stay_awake(self, queue: str, *, until: datetime) -> None:
        """Say that a sweep looks at the queue until then. Never shortens what another one has said."""
        ...

    def fall_asleep(self, queue: str) -> None:
        """Say that no sweep does: one that is awake all the same says so again within a second."""
        ...

    def book(self, queue: str, *, now: datetime, until: datetime) -> bool:
        """Be the one who starts a sweep: False when one is awake, or somebody has just started one."""
        ...


class Phase(StrEnum):
    """Where in an operation an audit record was written."""

    INTENT = "intent"
    """Before the first write. One without a later record was interrupted: it may have happened, wholly or in part."""
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """Who did what, when and why. Never a payload: `detail` has names, numbers, digests, and configuration.

    `id` is a ULID of the time `at`; records of one operation share `operation_id`, the first one's id. `verified` says
    that AWS vouches for the principal; otherwise it is what the caller says.
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
        """Store one record, once. StoreFailed when it isn't stored: an operation without its record must not begin."""
        ...

    def records(self, queue: str, *, since: datetime, before: str, limit: int) -> Sequence[AuditRecord]:
        """The newest records of a queue from `since` on with ids below `before`, the newest first, at most `limit`."""
        ...


class JobStore(Protocol):
    """Where bulk operations are written down: each change under the revision that its writer has read."""

    def create(self, job: Job) -> None:
        """Store a new job, once: the same again changes nothing. Raises StoreFailed when it isn't stored."""
        ...

    def get(self, job_id: str) -> Job | None:
        """A job, read consistently, open or ended. Raises CorruptItem when it can't be read."""
        ...

    def open_jobs(self) -> Sequence[Job]:
        """The jobs that are not filed, the oldest first, read consistently. What can't be read is left out."""
        ...

    def ended_jobs(self, *, limit: int) -> Sequence[Job]:
        """The jobs that were filed, the newest first."""
        ...

    def replace(self, seen: Job, job: Job) -> bool:
        """Put `job` in the place of the open job that was `seen`. False, and nothing written, when it has changed."""
        ...

    def file(self, job: Job) -> None:
        """Move a job that is over, as it was seen, from the open ones to the ended. Safe to repeat."""
        ...


class CursorKey(Protocol):
    """What page cursors are signed with."""

    def key(self) -> bytes:
        """The key of this installation, the same for all of its programs; made when there is none."""
        ...


class Chores(Protocol):
    """What a host does besides its tasks, a little at a time."""

    def step(self, *, until: datetime) -> datetime | None:
        """Do what is due, and begin nothing more after `until`. When there is more to do; None while there isn't.

        Never raises for what goes wrong with one of them.
        """
        ...


class Invoker(Protocol):
    """Calls handler functions that live outside this process."""

    def handler(self, ref: str, settings: QueueSettings) -> "Handler":
        """The function that the queue's `handlers` name for `ref`, as a handler of this host.

        Its `call` raises Undelivered where nothing was run, and Reported for a failure that the function tells of.
        """
        ...

    def hand_over(self, claim: Claim, settings: QueueSettings) -> None:
        """Pass the claim on to the function that the queue names for the task's ref, which is to adopt it.

        Raises Undelivered where it surely won't.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Code registered under a stable name.

    `decode` makes the handler's input of the payload: InputInvalid means that it will never fit. `call` runs the
    handler on it; what an `is_async` one answers is awaited on an event loop. `encode` makes a storable result of
    what it returned: OutputInvalid means that it can't be one. `definition` has the options that a typed task was
    defined with, as a layer of its queue's configuration; it is empty for a plain handler.
    """

    ref: str
    version: str | None
    decode: Callable[[Task], Any]
    call: "Callable[[Any, TaskContext], Any]"
    encode: Callable[[Any], Result]
    is_async: bool = False
    outcome: OutcomeMapper | None = None
    definition: Mapping[str, Any] = field(default_factory=dict)


class HandlerSource(Protocol):
    """The handlers of this host, and the queues that it serves."""

    @property
    def queues(self) -> Sequence[str]:
        """The queues that this host may take tasks from."""
        ...

    @property
    def classes(self) -> Mapping[type[BaseException], Outcome]:
        """Exception classes whose outcome is decided in code."""
        ...

    @property
    def repairs(self) -> "Sequence[Repair]":
        """The application's reconcilers, which this host runs before its claims."""
        ...

    def find(self, handler_ref: str) -> Handler | None:
        """The handler of this name, looked up, never imported."""
        ...


class EventSink(Protocol):
    """Where events go: logs, metrics, traces."""

    def emit(self, event: Event) -> None:
        """Tell of something that has happened. Must not raise."""
        ...


class ErrorSink(Protocol):
    """Where errors go that have no task to be stored on."""

    def __call__(self, error: BaseException, *, where: str) -> None:
        """Tell of an error. Must not raise."""
        ...
