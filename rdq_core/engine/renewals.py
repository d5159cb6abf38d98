"""Renews what long overdue tasks keep outside of their rows: in paused queues, in queues of other
hosts, and where claims are weeks behind.

Stores let a body expire some weeks after its task was due, unless it is renewed. A claim renews it;
where no claim comes, a sweeper looks through the queue once a day, a few pages at a time. A queue
whose work is done in time costs nothing more.
"""

from collections import deque
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.limits import LONG_OVERDUE
from rdq_core.engine.ports import Clock, ErrorSink, Jitter, TaskStore
from rdq_core.errors import CorruptItem, StoreFailed

_EVERY: Final = timedelta(days=1)
_PAGE: Final = 25
_TASKS_A_STEP: Final = 2 * _PAGE
_QUERIES_A_STEP: Final = 20


class Renewals:
    """Looks through the overdue work of queues. One object a process. `pages` are to be read."""

    def __init__(
        self, store: TaskStore, *, clock: Clock, jitter: Jitter, on_error: ErrorSink
    ) -> None:
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._on_error = on_error
        self.pages: deque[tuple[str, int, Any]] = deque()
        self._next_look: dict[str, datetime] = {}

    def look_after(self, queue: str, shards: int) -> None:
        """Look through this queue in the next steps, unless it was begun within a day."""
        now = self._clock.now()
        if now < self._next_look.get(queue, now):
            return
        self._next_look[queue] = now + _EVERY
        # From a random shard on, because a process may end before it is through.
        start = int(abs(self._jitter.fraction()) * shards)
        self.pages.extend((queue, (start + step) % shards, None) for step in range(shards))

    def step(self) -> None:
        """Read and renew the next pages, within the bounds of a step. Never raises for storage."""
        looked_at = 0
        for _ in range(_QUERIES_A_STEP):
            if not self.pages or looked_at > _TASKS_A_STEP - _PAGE:
                return
            looked_at += self._renew_page(*self.pages.popleft())

    def _renew_page(self, queue: str, shard: int, after: Any) -> int:
        """Renew what is overdue on one page; the number of its tasks."""
        now = self._clock.now()
        try:
            page = self._store.candidates(
                queue, shard, until=now - LONG_OVERDUE, limit=_PAGE, after=after
            )
        except StoreFailed as failed:
            self._on_error(failed, where=f"reading shard {shard} of queue {queue}")
            return 0
        # To the end of the line, so that one long shard keeps no other queue waiting.
        if page.next is not None:
            self.pages.append((queue, shard, page.next))
        for candidate in page.items:
            try:
                self._store.renew(candidate, now=now)
            except (CorruptItem, StoreFailed) as error:
                self._on_error(error, where=f"renewing the body of task {candidate.task_id}")
        return len(page.items)
