"""The reference of queue configuration: layers behind one lock, gone with the process."""

import threading
from collections.abc import Callable, Mapping
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
from rdq_core.engine.ports import Clock


class MemoryQueues:
    """A `QueueStore` in this process's memory, safe between threads.

    `queues` are what is declared at the beginning, as in a file: `{"billing": {"retry":
    {"max_attempts": 3}}}`.
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
        """See `QueueSource.for_submits`. Nothing here is ever old."""
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
        return self._leave(seen, lambda is_: is_.looked_at == seen.looked_at, looked_at=now)

    def end_delete(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.end_delete`."""
        return self._leave(
            seen,
            lambda is_: not is_.is_deleted and is_.deleting_at == seen.deleting_at,
            deleted_at=now,
            looked_at=now,
        )

    def reopen(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.reopen`."""
        return self._leave(
            seen,
            lambda is_: is_.is_deleted and is_.deleted_at == seen.deleted_at,
            deleted_at=None,
            deleting_at=now,
        )

    def _leave(
        self, seen: StoredQueue, condition: Callable[[StoredQueue], bool], **changes: Any
    ) -> bool:
        """Change a queue that is on its way out, as long as the condition holds of it."""
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
