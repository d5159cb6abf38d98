"""The reference store: the pure functions of the lifecycle behind one lock, gone with the process.

Tests compare other stores with it step by step, and it is the engine's store in tests.
"""

import threading
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rdq_core import errors
from rdq_core.domain import lifecycle
from rdq_core.domain.attempt import Attempt
from rdq_core.domain.dead import DeadEntry, entry_of
from rdq_core.domain.ids import shard_of
from rdq_core.domain.lease import Claim, Grant, Unreached
from rdq_core.domain.lifecycle import Edit, Result, Row, Verb
from rdq_core.domain.references import Reference, forgotten, is_forgotten, references_of
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.domain.times import EPOCH, to_millis
from rdq_core.engine.ports import (
    KEY_BUSY,
    Candidate,
    Clock,
    IdSource,
    KeyBusy,
    OrphanReport,
    Page,
    QueueCounts,
    Submission,
)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A row with its index shard, the fingerprint of its death, and the request that cancelled or
    redrove it last.
    """

    row: Row
    shard: int
    fingerprint: str = ""
    op_id: str | None = None

    @property
    def task(self) -> Task:
        return self.row.task

    @property
    def due(self) -> tuple[int, str] | None:
        """Its place in the due index, None when it has ended."""
        due_at = self.task.next_attempt_at or self.task.lease_expires_at
        return None if due_at is None else (to_millis(due_at), self.task.id)

    @property
    def death(self) -> tuple[int, str] | None:
        """Its place in the DLQ, None unless it is dead."""
        dead_at = self.task.completed_at if self.task.status is Status.DEAD else None
        return None if dead_at is None else (to_millis(dead_at), self.task.id)

    @property
    def entry(self) -> DeadEntry:
        return entry_of(
            self.task,
            attempts=len(self.task.attempts),
            payload_size=len(self.task.payload),
            fingerprint=self.fingerprint,
        )


class MemoryStore:
    """A `TaskStore` in this process's memory, safe between threads."""

    def __init__(self, *, clock: Clock, ids: IdSource) -> None:
        self._clock = clock
        self._ids = ids
        # Reentrant, because verbs call each other while they hold it.
        self._lock = threading.RLock()
        self._kept: dict[str, _Stored] = {}
        self._due: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
        self._dead: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._forgotten: dict[Reference, datetime] = {}

    # -- submitting --------------------------------------------------------------------------------

    def submit(self, task: Task, *, shards: int) -> Submission:
        """See `TaskStore.submit`."""
        with self._lock:
            now = self._clock.now()
            present = self._present(task.id, now)
            if present is None:
                # Under one lock with the write, so that no second look is needed after it.
                forgets = (self._forgotten.get(each) for each in references_of(task))
                if any(is_forgotten(now, forgotten_at) for forgotten_at in forgets):
                    raise forgotten(task.id)
                row = lifecycle.submitted(task, life=self._ids.nonce(), now=now)
                self._put(_Stored(row, _shard(row.task, shards)))
                return Submission(row.task, created=True)
            if present.task.queue != task.queue:
                raise errors.TaskConflict(
                    f"task {task.id} exists in queue {present.task.queue}", task_id=task.id
                )
            return Submission(present.task, created=False)

    def submit_many(
        self, tasks: Sequence[Task], *, shards_of: Callable[[str], int]
    ) -> list[Submission | errors.RdqError]:
        """See `TaskStore.submit_many`."""
        answers: list[Submission | errors.RdqError] = []
        storage_failed = False
        for task in tasks:
            try:
                answers.append(
                    lifecycle.not_tried(task.id)
                    if storage_failed
                    else self.submit(task, shards=shards_of(task.queue))
                )
            except errors.RdqError as refused:
                answers.append(refused)
                storage_failed = isinstance(refused, errors.StoreFailed | errors.Unavailable)
        return answers

    # -- claiming ----------------------------------------------------------------------------------

    def candidates(
        self, queue: str, shard: int, *, until: datetime, limit: int, after: Any = None
    ) -> Page[Candidate]:
        """See `TaskStore.candidates`."""
        with self._lock:
            due = self._due[queue, shard]
            start = 0 if after is None else bisect_right(due, tuple(after))
            end = bisect_right(due, (to_millis(until) + 1,))
            chosen = due[start : min(end, start + limit)]
            more = list(chosen[-1]) if chosen and start + limit < end else None
            return Page([self._candidate(task_id) for _, task_id in chosen], more)

    def claim_keyed(self, candidate: Candidate, grant: Grant) -> Claim | KeyBusy | None:
        """See `TaskStore.claim_keyed`."""
        with self._lock:
            in_flight = self._living(candidate.queue, Status.IN_FLIGHT)
            if any(
                stored.task.concurrency_key == candidate.concurrency_key for stored in in_flight
            ):
                return KEY_BUSY
            return self.claim(candidate, grant)

    def claim(self, candidate: Candidate, grant: Grant) -> Claim | None:
        """See `TaskStore.claim`."""

        def step(row: Row) -> Row | None:
            is_as_seen = row.fencing_token == candidate.fencing_token
            return lifecycle.claimed(row, grant) if is_as_seen else None

        return self._lease(candidate.task_id, step, now=grant.now)

    def renew(self, candidate: Candidate, *, now: datetime) -> None:
        """See `TaskStore.renew`. Everything is in the row, so there is nothing to renew."""

    def lapsed(self, candidate: Candidate, *, now: datetime) -> Claim | None:
        """See `TaskStore.lapsed`."""
        with self._lock:
            present = self._present(candidate.task_id, now)
            if present is None or present.row.token is None or not present.task.is_due(now):
                return None
            return _claim_of(present.row)

    def load(self, claim: Claim) -> Task:
        """See `TaskStore.load`."""
        return claim.task

    def reclaim(self, lapsed: Claim, attempt: Attempt, grant: Grant) -> Claim | None:
        """See `TaskStore.reclaim`."""
        return self._lease(
            lapsed.task.id,
            lambda row: lifecycle.reclaimed(row, lapsed.token, attempt, grant),
            now=grant.now,
        )

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
        """See `TaskStore.dead_letter_lapsed`."""
        return self._has_changed(
            lapsed.task.id,
            Verb.DEAD_LETTER,
            lambda row: lifecycle.dead_lettered_lapsed(
                row, lapsed.token, attempt, failure, now=grant.now, expires_at=expires_at
            ),
            fingerprint=fingerprint,
        )

    def release_lapsed(
        self,
        lapsed: Claim,
        failure: Failure,
        grant: Grant,
        *,
        due_at: datetime,
        unreached: Unreached,
    ) -> bool:
        """See `TaskStore.release_lapsed`."""
        return self._has_changed(
            lapsed.task.id,
            Verb.RELEASE,
            lambda row: lifecycle.released_lapsed(
                row, lapsed.token, failure, now=grant.now, due_at=due_at, unreached=unreached
            ),
        )

    # -- by the holder -----------------------------------------------------------------------------

    def adopt(self, task_id: str, token: str, grant: Grant) -> Claim:
        """See `TaskStore.adopt`."""
        return _claim_of(
            self._change(task_id, Verb.ADOPT, lambda row: lifecycle.adopted(row, token, grant))
        )

    def heartbeat(self, claim: Claim, lease_expires_at: datetime) -> None:
        """See `TaskStore.heartbeat`."""
        self._change(
            claim.task.id,
            Verb.HEARTBEAT,
            lambda row: lifecycle.heartbeat(row, claim.token, lease_expires_at),
        )

    def complete(
        self,
        claim: Claim,
        attempt: Attempt,
        result: Result,
        *,
        now: datetime,
        expires_at: datetime | None,
    ) -> None:
        """See `TaskStore.complete`."""
        self._change(
            claim.task.id,
            Verb.COMPLETE,
            lambda row: lifecycle.completed(
                row, claim.token, attempt, result, now=now, expires_at=expires_at
            ),
        )

    def reschedule(
        self, claim: Claim, attempt: Attempt, failure: Failure, *, due_at: datetime
    ) -> None:
        """See `TaskStore.reschedule`."""
        self._change(
            claim.task.id,
            Verb.RESCHEDULE,
            lambda row: lifecycle.rescheduled(row, claim.token, attempt, failure, due_at=due_at),
        )

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
        """See `TaskStore.dead_letter`."""
        self._change(
            claim.task.id,
            Verb.DEAD_LETTER,
            lambda row: lifecycle.dead_lettered(
                row, claim.token, attempt, failure, now=now, expires_at=expires_at
            ),
            fingerprint=fingerprint,
        )

    def release(
        self,
        claim: Claim,
        failure: Failure,
        *,
        due_at: datetime,
        unreached: Unreached | None = None,
    ) -> None:
        """See `TaskStore.release`."""
        self._change(
            claim.task.id,
            Verb.RELEASE,
            lambda row: lifecycle.released(
                row, claim.token, failure, due_at=due_at, unreached=unreached
            ),
        )

    # -- by operators -----------------------------------------------------------------------------

    def cancel(
        self, task_id: str, *, now: datetime, op_id: str, expires_at: datetime | None
    ) -> Task:
        """See `TaskStore.cancel`."""
        with self._lock:
            stored = self._existing(task_id, now)
            row = lifecycle.cancelled(stored.row, now=now, expires_at=expires_at)
            return self._put(replace(stored, row=row, op_id=op_id)).row.task

    def redrive(
        self, entry: DeadEntry, edit: Edit, *, now: datetime, op_id: str, shards: int
    ) -> Task:
        """See `TaskStore.redrive`."""
        with self._lock:
            marked = self._existing(entry.task_id, now)
            # This very request has redriven it before, and is repeated.
            if marked.op_id == op_id:
                return marked.task
            stored = self._dead_since(entry, Verb.REDRIVE, now)
            row = lifecycle.redriven(stored.row, edit, now=now)
            return self._put(_Stored(row, _shard(row.task, shards), op_id=op_id)).row.task

    # no answer is ever lost in memory, so a request needs no mark
    def purge(self, entry: DeadEntry, *, now: datetime, op_id: str) -> None:  # noqa: ARG002
        """See `TaskStore.purge`."""
        with self._lock:
            stored = self._dead_since(entry, Verb.PURGE, now)
            self._unindex(stored)
            del self._kept[entry.task_id]

    def forget(self, reference: Reference, *, now: datetime) -> int:
        """See `TaskStore.forget`."""
        with self._lock:
            self._forgotten[reference] = max(now, self._forgotten.get(reference, now))
            chosen = [
                stored
                for stored in self._kept.values()
                if reference in references_of(stored.task)
                and is_forgotten(stored.task.created_at, now)
            ]
            for stored in chosen:
                self._unindex(stored)
                del self._kept[stored.task.id]
            return sum(not stored.row.is_gone(now) for stored in chosen)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, task_id: str) -> Task | None:
        """See `TaskStore.get`."""
        with self._lock:
            stored = self._present(task_id, self._clock.now())
            return None if stored is None else stored.task

    def dead_entry(self, task_id: str) -> DeadEntry | None:
        """See `TaskStore.dead_entry`."""
        with self._lock:
            stored = self._present(task_id, self._clock.now())
            return (
                stored.entry if stored is not None and stored.task.status is Status.DEAD else None
            )

    def bears_mark(self, task_id: str, op_id: str) -> bool:
        """See `TaskStore.bears_mark`."""
        with self._lock:
            stored = self._present(task_id, self._clock.now())
            return stored is not None and stored.op_id == op_id

    def dead(self, queue: str, *, limit: int, after: Any = None) -> Page[DeadEntry]:
        """See `TaskStore.dead`. Expired entries count for the page and are left out."""
        with self._lock:
            now, deaths = self._clock.now(), self._dead[queue]
            start = 0 if after is None else bisect_right(deaths, tuple(after))
            read = deaths[start : start + limit]
            stored = [self._kept[task_id] for _, task_id in read]
            more = list(read[-1]) if start + limit < len(deaths) else None
            return Page([each.entry for each in stored if not each.row.is_gone(now)], more)

    def counts(self, queue: str) -> QueueCounts:
        """See `TaskStore.counts`."""
        with self._lock:
            waiting = [stored.task for stored in self._living(queue, Status.PENDING)]
            return QueueCounts(
                pending=len(waiting),
                in_flight=sum(1 for _ in self._living(queue, Status.IN_FLIGHT)),
                dead=sum(1 for _ in self._living(queue, Status.DEAD)),
                oldest_due_at=min(
                    (task.next_attempt_at for task in waiting if task.next_attempt_at), default=None
                ),
                exact=True,
            )

    # -- cleaning up -------------------------------------------------------------------------------

    def clean_up(self, record: Mapping[str, Any]) -> None:
        """See `Orphans.clean_up`. Everything is in the row, so there are no orphans."""

    # there are no orphans to look for
    def collect_orphans(self, *, after: Any = None, dry_run: bool) -> OrphanReport:  # noqa: ARG002
        """See `Orphans.collect_orphans`."""
        return OrphanReport(Counter(), Counter(), Counter())

    # -- inside ------------------------------------------------------------------------------------

    def _lease(
        self, task_id: str, step: Callable[[Row], Row | None], *, now: datetime
    ) -> Claim | None:
        with self._lock:
            stored = self._present(task_id, now)
            try:
                row = None if stored is None else step(stored.row)
            except errors.LeaseLost:
                return None
            if stored is None or row is None:
                return None
            return _claim_of(self._put(replace(stored, row=row)).row)

    def _change(
        self, task_id: str, verb: Verb, step: Callable[[Row], Row], *, fingerprint: str = ""
    ) -> Row:
        with self._lock:
            stored = self._kept.get(task_id)
            if stored is None:
                raise lifecycle.lost(task_id, verb)
            return self._put(replace(stored, row=step(stored.row), fingerprint=fingerprint)).row

    def _has_changed(
        self, task_id: str, verb: Verb, step: Callable[[Row], Row], *, fingerprint: str = ""
    ) -> bool:
        try:
            self._change(task_id, verb, step, fingerprint=fingerprint)
        except errors.LeaseLost:
            return False
        return True

    def _put(self, stored: _Stored) -> _Stored:
        before = self._kept.get(stored.task.id)
        if before is not None:
            self._unindex(before)
        self._kept[stored.task.id] = stored
        if stored.due is not None:
            insort(self._due[stored.task.queue, stored.shard], stored.due)
        if stored.death is not None:
            insort(self._dead[stored.task.queue], stored.death)
        return stored

    def _unindex(self, stored: _Stored) -> None:
        if stored.due is not None:
            due = self._due[stored.task.queue, stored.shard]
            del due[bisect_right(due, stored.due) - 1]
        if stored.death is not None:
            dead = self._dead[stored.task.queue]
            del dead[bisect_right(dead, stored.death) - 1]

    def _present(self, task_id: str, now: datetime) -> _Stored | None:
        stored = self._kept.get(task_id)
        return None if stored is None or stored.row.is_gone(now) else stored

    def _existing(self, task_id: str, now: datetime) -> _Stored:
        stored = self._present(task_id, now)
        if stored is None:
            raise errors.TaskNotFound(f"no task {task_id}", task_id=task_id)
        return stored

    def _dead_since(self, entry: DeadEntry, verb: Verb, now: datetime) -> _Stored:
        stored = self._existing(entry.task_id, now)
        if stored.task.status is not Status.DEAD or stored.task.completed_at != entry.dead_at:
            raise lifecycle.conflict(entry.task_id, stored.task.status, verb)
        return stored

    def _living(self, queue: str, status: Status) -> Iterator[_Stored]:
        now = self._clock.now()
        return (
            stored
            for stored in self._kept.values()
            if stored.task.queue == queue
            and stored.task.status is status
            and not stored.row.is_gone(now)
        )

    def _candidate(self, task_id: str) -> Candidate:
        stored = self._kept[task_id]
        task = stored.task
        return Candidate(
            task_id=task_id,
            queue=task.queue,
            due_at=task.next_attempt_at or task.lease_expires_at or EPOCH,
            status=task.status,
            fencing_token=stored.row.fencing_token,
            handler_ref=task.handler_ref,
            concurrency_key=task.concurrency_key,
        )


def _shard(task: Task, shards: int) -> int:
    return shard_of(task.id, shards, queue=task.queue, concurrency_key=task.concurrency_key)


def _claim_of(row: Row) -> Claim:
    task = row.task
    return Claim(
        task=replace(task, attempts=()),
        token=row.token or "",
        fencing_token=row.fencing_token,
        claimed_at=row.claimed_at or EPOCH,
        lease_expires_at=task.lease_expires_at or EPOCH,
        history_length=len(task.attempts),
        life=row.life,
        handed_over=row.handed_over,
        unreached=row.unreached,
    )
