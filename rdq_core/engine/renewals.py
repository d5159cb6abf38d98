"""What overdue tasks carry is kept for them, in paused queues too, and in those that another host serves.

Stores let it expire some weeks after its task was due, unless somebody renews it: claims do, for work that is claimed.
For the rest, each sweeper looks through its queues once a day, a little at a time.
"""

import threading
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.limits import LONG_OVERDUE
from rdq_core.engine.ports import Clock, ErrorSink, Jitter, QueueSource, TaskStore
from rdq_core.errors import ConfigInvalid, CorruptItem, QueueNotFound, StoreFailed

_EVERY: Final = timedelta(days=1)
_PAGE: Final = 25
_TASKS_AT_ONCE: Final = 2 * _PAGE
_QUERIES_AT_ONCE: Final = 20


class Renewals:
    """Looks through the due work of these queues. One object a process: it remembers how far it has got."""

    def __init__(
        self,
        store: TaskStore,
        queues: QueueSource,
        serves: Sequence[str],
        *,
        clock: Clock,
        jitter: Jitter,
        on_error: ErrorSink,
    ) -> None:
        self._store = store
        self._queues = queues
        self._serves = serves
        self._clock = clock
        self._jitter = jitter
        self._on_error = on_error
        self._pages: deque[tuple[str, int, Any]] = deque()
        self._next_look: datetime | None = None
        self._lock = threading.Lock()

    def step(self) -> None:
        """Go on with the look that is under way, or begin one when a day has passed. Never raises for storage."""
        if not self._lock.acquire(blocking=False):
            return  # another sweep of this process is at it
        try:
            self._step(self._clock.now())
        finally:
            self._lock.release()

    def _step(self, now: datetime) -> None:
        if not self._pages and (self._next_look is None or now >= self._next_look):
            self._next_look = now + _EVERY
            self._begin()
        looked_at = 0
        for _ in range(min(_QUERIES_AT_ONCE, len(self._pages))):
            looked_at += self._look_at(*self._pages.popleft(), now)
            if looked_at > _TASKS_AT_ONCE - _PAGE:
                return

    def _begin(self) -> None:
        for queue in self._serves:
            try:
                shards = self._queues.settings(queue).shards_ever
            except (QueueNotFound, ConfigInvalid, CorruptItem, StoreFailed):
                continue  # the sweep, which needs it more, tells
            self._pages.extend((queue, shard, None) for shard in range(shards))
        # From a place of our own on, because a process may end before it is through.
        self._pages.rotate(int(abs(self._jitter.fraction()) * len(self._pages)))

    def _look_at(self, queue: str, shard: int, after: Any, now: datetime) -> int:
        """Renew what is overdue on one page; how much that was."""
        try:
            page = self._store.candidates(queue, shard, until=now - LONG_OVERDUE, limit=_PAGE, after=after)
        except StoreFailed as failed:
            self._on_error(failed, where=f"reading shard {shard} of queue {queue}")
            return 0
        if page.next is not None:
            self._pages.append((queue, shard, page.next))
        for candidate in page.items:
            try:
                self._store.renew(candidate, now=now)
            except (CorruptItem, StoreFailed) as error:
                self._on_error(error, where=f"renewing the body of task {candidate.task_id}")
        return len(page.items)
