"""The reference of the stores beside the tasks: queue configuration, reservations, jobs, the cursor
key and the audit log. Each is a mapping behind a lock, gone with the process.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import (
    Override,
    StoredQueue,
    deleted_queue,
    overridden,
    owned,
    redeclared,
    unknown_queue,
)
from rdq_core.domain import limits
from rdq_core.domain.job import Job
from rdq_core.engine.ports import AuditRecord, Clock
from rdq_core.errors import StoreFailed


class MemoryQueues:
    """A `QueueStore` in memory, safe between threads.

    `queues` are declared at the beginning, as in a file:
    `{"billing": {"retry": {"max_attempts": 3}}}`.
    """

    def __init__(
        self, queues: Mapping[str, Mapping[str, Any]] | None = None, *, clock: Clock
    ) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._stored: dict[str, StoredQueue] = {}
        for queue, declared in (queues or {}).items():
            self.put_declared(queue, declared, {}, expected_revision=0)

    def settings(self, queue: str, *, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """See `QueueSource.settings`."""
        return self._existing(queue).settings(self._clock.now(), definition)

    def for_submits(self, queue: str) -> QueueSettings:
        """See `QueueSource.for_submits`. Always up to date."""
        return self.settings(queue)

    def all(self) -> Mapping[str, QueueSettings]:
        """See `QueueSource.all`."""
        with self._lock:
            return {queue: self.settings(queue) for queue in self._configured()}

    def stored(self, queue: str) -> StoredQueue | None:
        """See `QueueStore.stored`."""
        with self._lock:
            return self._stored.get(queue)

    def all_stored(self) -> Mapping[str, StoredQueue]:
        """See `QueueStore.all_stored`."""
        with self._lock:
            return dict(self._stored)

    def put_declared(
        self,
        queue: str,
        declared: Mapping[str, Any],
        file_defaults: Mapping[str, Any],
        *,
        expected_revision: int,
    ) -> StoredQueue:
        """See `QueueStore.put_declared`."""
        limits.check_name("queue", queue)
        with self._lock:
            before = self._stored.get(queue)
            after = redeclared(
                before, queue, declared, file_defaults, expected_revision=expected_revision
            )
            self._stored[queue] = after
            return after

    def put_owners(self, seen: StoredQueue, owners: tuple[str, ...]) -> bool:
        """See `QueueStore.put_owners`."""
        with self._lock:
            present = self._existing(seen.queue)
            if (present.revision, present.override_revision) != (
                seen.revision,
                seen.override_revision,
            ):
                return False
            self._stored[seen.queue] = owned(present, owners)
            return True

    def put_override(
        self, queue: str, override: Override | None, *, expected_revision: int
    ) -> StoredQueue:
        """See `QueueStore.put_override`."""
        return self._change(
            queue, lambda before: overridden(before, override, expected_revision=expected_revision)
        )

    def pause(
        self, queue: str, *, paused: bool, now: datetime, reason: str | None = None
    ) -> StoredQueue:
        """See `QueueStore.pause`."""
        paused_at, why = (now, reason) if paused else (None, None)
        return self._change(
            queue, lambda before: replace(before, paused_at=paused_at, pause_reason=why)
        )

    def begin_delete(self, queue: str, *, now: datetime) -> StoredQueue:
        """See `QueueStore.begin_delete`."""
        return self._change(
            queue,
            lambda before: (
                before if before.deleting_at else replace(before, deleting_at=now, looked_at=None)
            ),
        )

    def note_look(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.note_look`."""
        return self._change_leaving(
            seen, lambda present: present.looked_at == seen.looked_at, looked_at=now
        )

    def end_delete(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.end_delete`."""
        return self._change_leaving(
            seen,
            lambda present: not present.is_deleted and present.deleting_at == seen.deleting_at,
            deleted_at=now,
            looked_at=now,
        )

    def reopen(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.reopen`."""
        return self._change_leaving(
            seen,
            lambda present: present.is_deleted and present.deleted_at == seen.deleted_at,
            deleted_at=None,
            deleting_at=now,
        )

    def _change_leaving(
        self, seen: StoredQueue, condition: Callable[[StoredQueue], bool], **changes: Any
    ) -> bool:
        """Change a queue that is being deleted, or is deleted, if the condition holds."""
        with self._lock:
            present = self._stored[seen.queue]
            if not (present.is_leaving and condition(present)):
                return False
            self._stored[seen.queue] = replace(present, **changes)
            return True

    def _change(self, queue: str, step: Callable[[StoredQueue], StoredQueue]) -> StoredQueue:
        with self._lock:
            self._stored[queue] = step(self._existing(queue))
            return self._stored[queue]

    def _existing(self, queue: str) -> StoredQueue:
        with self._lock:
            if queue not in self._stored:
                raise unknown_queue(queue, self._configured())
            if self._stored[queue].is_deleted:
                raise deleted_queue(self._stored[queue])
            return self._stored[queue]

    def _configured(self) -> list[str]:
        return sorted(name for name, stored in self._stored.items() if not stored.is_deleted)


class MemoryReservations:
    """A `Reservations` in memory, safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, datetime] = {}

    def acquire(self, queue: str, *, now: datetime, until: datetime) -> bool:
        """See `Reservations.acquire`."""
        with self._lock:
            if queue in self._until and self._until[queue] > now:
                return False
            self._until[queue] = until
            return True

    def extend(self, queue: str, *, until: datetime) -> None:
        """See `Reservations.extend`."""
        with self._lock:
            self._until[queue] = max(until, self._until.get(queue, until))

    def release(self, queue: str) -> None:
        """See `Reservations.release`."""
        with self._lock:
            self._until.pop(queue, None)

    def is_awake(self, queue: str, now: datetime) -> bool:
        """Whether the queue is reserved, for tests."""
        with self._lock:
            return queue in self._until and self._until[queue] > now


class MemoryJobs:
    """A `JobStore` in memory, safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Job] = {}
        self._ended: dict[str, Job] = {}

    def create(self, job: Job) -> None:
        """See `JobStore.create`."""
        with self._lock:
            present = self._open.get(job.id) or self._ended.get(job.id)
            if present is None:
                self._open[job.id] = job
            # The same job, begun before and perhaps worked on since, is no conflict.
            elif not present.continues(job):
                raise StoreFailed(f"job {job.id} is there already", may_have_happened=False)

    def get(self, job_id: str) -> Job | None:
        """See `JobStore.get`."""
        with self._lock:
            return self._open.get(job_id) or self._ended.get(job_id)

    def open_jobs(self) -> Sequence[Job]:
        """See `JobStore.open_jobs`."""
        with self._lock:
            return [self._open[job_id] for job_id in sorted(self._open)]

    def ended_jobs(self, *, limit: int) -> Sequence[Job]:
        """See `JobStore.ended_jobs`."""
        with self._lock:
            return [self._ended[job_id] for job_id in sorted(self._ended, reverse=True)[:limit]]

    def replace(self, seen: Job, job: Job) -> bool:
        """See `JobStore.replace`."""
        with self._lock:
            present = self._open.get(job.id)
            if present is None or present.revision != seen.revision:
                return False
            self._open[job.id] = job
            return True

    def file(self, job: Job) -> None:
        """See `JobStore.file`."""
        with self._lock:
            present = self._open.get(job.id)
            if present is None:
                return
            if present.revision != job.revision:
                raise StoreFailed(
                    f"job {job.id} has changed since it was read", may_have_happened=False
                )
            self._ended[job.id] = self._open.pop(job.id)


class MemoryCursorKey:
    """A `CursorKey` of this process."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def key(self) -> bytes:
        """See `CursorKey.key`."""
        return self._key


class MemoryAudit:
    """An `AuditLog` in memory, safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, AuditRecord] = {}

    def append(self, record: AuditRecord) -> None:
        """See `AuditLog.append`."""
        with self._lock:
            # The same record may come again: that is how a lost answer is made up for.
            if self._records.setdefault(record.id, record) != record:
                raise StoreFailed(
                    f"audit record {record.id} is there already", may_have_happened=False
                )

    def records(
        self, queue: str, *, since: datetime, before: str, limit: int
    ) -> Sequence[AuditRecord]:
        """See `AuditLog.records`."""
        with self._lock:
            chosen = [
                record
                for record in self._records.values()
                if record.queue == queue and record.at >= since and record.id < before
            ]
        return sorted(chosen, key=lambda record: record.id, reverse=True)[:limit]
