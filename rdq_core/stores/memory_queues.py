"""The reference of queue configuration: layers behind one lock, gone with the process."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import Override, StoredQueue, overridden, redeclared, unknown_queue
from rdq_core.domain import limits
from rdq_core.engine.ports import Clock


class MemoryQueues:
    """A `QueueStore` in this process's memory, safe between threads.

    `queues` are what is declared at the beginning, as in a file: `{"billing": {"retry": {"max_attempts": 3}}}`.
    """

    def __init__(self, queues: Mapping[str, Mapping[str, Any]] | None = None, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._stored: dict[str, StoredQueue] = {}
        for queue, declared in (queues or {}).items():
            self.put_declared(queue, declared, {}, expected_revision=0)

    def settings(self, queue: str, *, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """See `QueueSource.settings`."""
        return self._existing(queue).settings(self._clock.now(), definition)

    def all(self) -> Mapping[str, QueueSettings]:
        """See `QueueSource.all`."""
        with self._lock:
            return {queue: self.settings(queue) for queue in sorted(self._stored)}

    def stored(self, queue: str) -> StoredQueue | None:
        """See `QueueStore.stored`."""
        with self._lock:
            return self._stored.get(queue)

    def put_declared(
        self, queue: str, declared: Mapping[str, Any], file_defaults: Mapping[str, Any], *, expected_revision: int
    ) -> StoredQueue:
        """See `QueueStore.put_declared`."""
        limits.check_name("queue", queue)
        with self._lock:
            before = self._stored.get(queue)
            after = redeclared(before, queue, declared, file_defaults, expected_revision=expected_revision)
            self._stored[queue] = after
            return after

    def put_override(self, queue: str, override: Override | None, *, expected_revision: int) -> StoredQueue:
        """See `QueueStore.put_override`."""
        return self._change(queue, lambda before: overridden(before, override, expected_revision=expected_revision))

    def pause(self, queue: str, *, paused: bool, now: datetime) -> StoredQueue:
        """See `QueueStore.pause`."""
        return self._change(queue, lambda before: replace(before, paused_at=now if paused else None))

    def _change(self, queue: str, step: Callable[[StoredQueue], StoredQueue]) -> StoredQueue:
        with self._lock:
            self._stored[queue] = step(self._existing(queue))
            return self._stored[queue]

    def _existing(self, queue: str) -> StoredQueue:
        with self._lock:
            if queue not in self._stored:
                raise unknown_queue(queue, self._stored)
            return self._stored[queue]
