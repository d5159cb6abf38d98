"""A store under test, a clock that the test moves, and short names for the usual steps.

The suite uses only the store port. `raw` is what the store keeps under an id: it is only compared
with itself, which catches a write that changes something no verb shows. `many` is the number of
dead tasks in the longest lists.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar, assert_never

from rdq_core.domain.attempt import Attempt, Code
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lease import Claim, once_more
from rdq_core.domain.lifecycle import NO_EDIT, Edit, Result
from rdq_core.domain.task import Status, Task
from rdq_core.engine.ports import Candidate, Page, TaskStore
from rdq_core.testing.clock import FrozenClock
from rdq_core.testing.contract.factories import (
    QUEUE,
    a_failed,
    a_failure,
    a_grant,
    a_lapse,
    a_result,
    a_success,
    a_task,
)

LEASE: Final = timedelta(minutes=1)
RETENTION: Final = timedelta(hours=24)
FINGERPRINT: Final = "v1:0123456789ab"
_ops = count(1)
T = TypeVar("T")


@dataclass(slots=True)
class Bench:
    """A store and the steps that tests take with it, each at the clock's present moment.

    `store` is empty and runs on `clock`. `raw` returns everything that the store keeps under an id;
    for a forgotten task it must be empty. `shards` is the number of shards that tasks are submitted
    to: tests change it, and the store must use its present value. `fellow` makes the same store for
    another thread; None means that threads may share `store`. `many` is the number of dead tasks in
    the longest lists.
    """

    store: TaskStore
    clock: FrozenClock
    raw: Callable[[str], object]
    shards: int = 1
    fellow: Callable[[], TaskStore] | None = None
    many: int = 250

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def another(self) -> TaskStore:
        """The same store for another thread: a store object of its own where threads must not
        share one.
        """
        return self.fellow() if self.fellow else self.store

    # -- steps -------------------------------------------------------------------------------------

    def submit(self, **fields: Any) -> Task:
        """A new task, due now unless the fields say otherwise."""
        submission = self.store.submit(a_task(**fields), shards=self.shards)
        assert submission.created
        return submission.task

    def candidates(self, queue: str = QUEUE, *, ahead: timedelta = timedelta(0)) -> list[Candidate]:
        """The candidates in the index, over all shards."""
        found: list[Candidate] = []
        for shard in range(self.shards):
            read = partial(self.store.candidates, queue, shard, until=self.now + ahead, limit=100)
            found += listed(read)
        return found

    def candidate(self, task_id: str, queue: str = QUEUE) -> Candidate:
        """A task's entry in the index, whenever it is due."""
        return next(
            each
            for each in self.candidates(queue, ahead=timedelta(days=400))
            if each.task_id == task_id
        )

    def claim(self, task_id: str, queue: str = QUEUE, *, lease: timedelta = LEASE) -> Claim:
        claim = self.store.claim(self.candidate(task_id, queue), a_grant(self.now, lease=lease))
        assert claim is not None
        return claim

    def claimed(self, **fields: Any) -> Claim:
        task = self.submit(**fields)
        return self.claim(task.id, task.queue)

    def lapse(self, claim: Claim) -> Claim:
        """Move the clock until the lease has lapsed."""
        self.clock.advance(max(self.until_lapse(claim), timedelta(0)))
        lapsed = self.store.lapsed(self.candidate(claim.task.id, claim.task.queue), now=self.now)
        assert lapsed is not None
        return lapsed

    def until_lapse(self, claim: Claim) -> timedelta:
        return claim.lease_expires_at - self.now

    def reclaim(self, claim: Claim) -> Claim:
        """Let the lease lapse, and claim the task for another worker."""
        lapsed = self.lapse(claim)
        taken = self.store.reclaim(lapsed, a_lapse(lapsed), a_grant(self.now))
        assert taken is not None
        return taken

    def heartbeat(self, claim: Claim) -> None:
        self.store.heartbeat(claim, self.now + 2 * LEASE)

    def complete(self, claim: Claim, result: Result | None = None, **success: Any) -> None:
        self.store.complete(
            claim,
            a_success(claim, self.now, **success),
            result or a_result(),
            now=self.now,
            expires_at=self.now + RETENTION,
        )

    def reschedule(
        self, claim: Claim, *, after: timedelta = timedelta(0), **failed: Any
    ) -> Attempt:
        attempt = a_failed(claim, self.now, **failed)
        self.store.reschedule(claim, attempt, a_failure(attempt), due_at=self.now + after)
        return attempt

    def dead_letter(self, claim: Claim, *, keep: timedelta | None = None, **failed: Any) -> Attempt:
        """Dead-letter the task; it stays for good unless `keep` bounds its retention."""
        attempt = a_failed(claim, self.now, **failed)
        self._dead_letter(claim, attempt, keep)
        return attempt

    def dead_letter_unrun(self, claim: Claim) -> None:
        """Dead-letter a task whose budget was already spent, without an attempt."""
        self._dead_letter(claim, None, None)

    def dead_letter_lapsed(self, lapsed: Claim) -> bool:
        attempt = a_lapse(lapsed)
        return self.store.dead_letter_lapsed(
            lapsed,
            attempt,
            a_failure(attempt),
            a_grant(self.now),
            fingerprint=FINGERPRINT,
            expires_at=None,
        )

    def release(self, claim: Claim, *, after: timedelta = timedelta(0)) -> None:
        self.store.release(claim, a_failure(code=Code.WORKER_SHUTDOWN), due_at=self.now + after)

    def handed_over(self, **fields: Any) -> Claim:
        """A claim for another worker to adopt."""
        task = self.submit(**fields)
        claim = self.store.claim(self.candidate(task.id), a_grant(self.now, hands_over=True))
        assert claim is not None
        return claim

    def adopt(self, claim: Claim) -> Claim:
        return self.store.adopt(claim.task.id, claim.token, a_grant(self.now))

    def release_lapsed(self, lapsed: Claim, *, after: timedelta = timedelta(0)) -> bool:
        unreached = once_more(lapsed.unreached, self.now, handed_over=True)
        failure = a_failure(code=Code.UNAVAILABLE)
        return self.store.release_lapsed(
            lapsed, failure, a_grant(self.now), due_at=self.now + after, unreached=unreached
        )

    def cancel(self, task_id: str) -> Task:
        return self.store.cancel(
            task_id, now=self.now, op_id=an_op(), expires_at=self.now + RETENTION
        )

    def redrive(self, task_id: str, edit: Edit = NO_EDIT) -> Task:
        return self.redrive_entry(self.entry(task_id), edit)

    def redrive_entry(self, entry: DeadEntry, edit: Edit = NO_EDIT) -> Task:
        return self.store.redrive(entry, edit, now=self.now, op_id=an_op(), shards=self.shards)

    def purge(self, task_id: str) -> None:
        self.store.purge(self.entry(task_id), now=self.now, op_id=an_op())

    # -- tasks that have come some way -------------------------------------------------------------

    def succeeded(self, **fields: Any) -> Task:
        claim = self.claimed(**fields)
        self.complete(claim)
        return self.task(claim.task.id)

    def dead(self, *, keep: timedelta | None = None, **fields: Any) -> Task:
        claim = self.claimed(**fields)
        self.dead_letter(claim, keep=keep)
        return self.task(claim.task.id)

    def many_dead(self, number: int) -> list[str]:
        """This number of tasks, all dead now, made without reading the index for each."""
        ids = [self.submit().id for _ in range(number)]
        for candidate in self.candidates():
            claim = self.store.claim(candidate, a_grant(self.now))
            assert claim is not None
            self.dead_letter_unrun(claim)
        return ids

    # -- looking -----------------------------------------------------------------------------------

    def task(self, task_id: str) -> Task:
        task = self.store.get(task_id)
        assert task is not None
        return task

    def entry(self, task_id: str) -> DeadEntry:
        entry = self.store.dead_entry(task_id)
        assert entry is not None
        return entry

    def dead_entries(self, queue: str = QUEUE, *, limit: int = 100) -> list[DeadEntry]:
        """All dead-letter entries of a queue."""
        return listed(partial(self.store.dead, queue, limit=limit))

    def numbers(self, task_id: str) -> list[int]:
        """The numbers of the recorded attempts."""
        return [attempt.attempt_no for attempt in self.task(task_id).attempts]

    def task_in(self, status: Status) -> Task:
        """A task in this status, reached through the verbs that lead there."""
        match status:
            case Status.PENDING:
                return self.submit()
            case Status.IN_FLIGHT:
                return self.task(self.claimed().task.id)
            case Status.SUCCEEDED:
                return self.succeeded()
            case Status.DEAD:
                return self.dead()
            case Status.CANCELLED:
                return self.cancel(self.submit().id)
        assert_never(status)

    def everything(self, task_id: str) -> dict[str, object]:
        """Everything that can be read of a task, and everything that the store keeps of it."""
        return {"seen": self.seen(task_id), "raw": self.raw(task_id)}

    def seen(self, task_id: str) -> dict[str, object]:
        """Everything that can be read of a task."""
        task = self.store.get(task_id)
        queue = QUEUE if task is None else task.queue
        return {
            "task": task,
            "entry": self.store.dead_entry(task_id),
            "index": [
                each
                for each in self.candidates(queue, ahead=timedelta(days=800))
                if each.task_id == task_id
            ],
        }

    def _dead_letter(self, claim: Claim, attempt: Attempt | None, keep: timedelta | None) -> None:
        expires_at = None if keep is None else self.now + keep
        self.store.dead_letter(
            claim,
            attempt,
            a_failure(attempt),
            now=self.now,
            fingerprint=FINGERPRINT,
            expires_at=expires_at,
        )


def an_op() -> str:
    """A new id of an operator request."""
    return f"op-{next(_ops)}"


def pages(read: Callable[..., Page[T]]) -> Iterator[Page[T]]:
    """Every page up to the last. `read` takes `after`."""
    page = read(after=None)
    while True:
        yield page
        if page.next is None:
            return
        page = read(after=page.next)


def listed(read: Callable[..., Page[T]]) -> list[T]:
    """The items of all pages."""
    return [item for page in pages(read) for item in page.items]


def side_by_side(calls: Iterable[Callable[[], T]]) -> list[T | Exception]:
    """The result or exception of each call, in order.

    All calls start at once, each on its own thread.
    """
    calls = list(calls)
    outcomes: list[T | Exception] = [AssertionError("never ran")] * len(calls)
    start = threading.Barrier(len(calls))

    def run(place: int, call: Callable[[], T]) -> None:
        start.wait()
        try:
            outcomes[place] = call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            outcomes[place] = error

    threads = [threading.Thread(target=run, args=[place, call]) for place, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
