"""What overdue tasks carry is kept for them where nobody claims them: in paused queues, and in
those of other hosts.

Stores let it expire some weeks after its task was due, unless somebody renews it. Claims do; where
there is none, or where claims are weeks behind, a sweeper looks through the queue once a day, a
little at a time. So a queue whose work is done in time costs nothing more.
"""

import threading
from collections import deque
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.limits import LONG_OVERDUE
from rdq_core.engine.ports import Candidate, Clock, ErrorSink, Jitter, TaskStore
from rdq_core.errors import CorruptItem, StoreFailed

_EVERY: Final = timedelta(days=1)
_PAGE: Final = 25
_TASKS_AT_ONCE: Final = 2 * _PAGE
_QUERIES_AT_ONCE: Final = 20


class Renewals:
    """Looks through the due work of queues. One object a process: it remembers how far it has got."""

    def __init__(
        self, store: TaskStore, *, clock: Clock, jitter: Jitter, on_error: ErrorSink
    ) -> None:
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._on_error = on_error
        self._pages: deque[tuple[str, int, Any]] = deque()
        self._next_look: dict[str, datetime] = {}
        self._lock = threading.Lock()

    def look_after(self, queue: str, shards: int) -> None:
        """This queue's work may be long overdue: it is looked through in the next steps, unless it
        was within a day.
        """
        now = self._clock.now()
        with self._lock:
            if now < self._next_look.get(queue, now):
                return
            self._next_look[queue] = now + _EVERY
            # From a shard of our own on, because a process may end before it is through.
            start = int(abs(self._jitter.fraction()) * shards)
            self._pages.extend((queue, (start + step) % shards, None) for step in range(shards))

    def notice(self, candidate: Candidate, shards: int) -> None:
        """A task of a queue that is served was found due: when it is long overdue, what is behind
        it is as well.
        """
        if candidate.due_at + LONG_OVERDUE <= self._clock.now():
            self.look_after(candidate.queue, shards)

    def step(self) -> None:
        """Go on with the looks that are under way. Never raises for storage."""
        now, looked_at = self._clock.now(), 0
        for _ in range(_QUERIES_AT_ONCE):
            page = self._next_page()
            if page is None:
                return
            looked_at += self._look_at(*page, now)
            if looked_at > _TASKS_AT_ONCE - _PAGE:
                return

    def _next_page(self) -> tuple[str, int, Any] | None:
        with self._lock:
            return self._pages.popleft() if self._pages else None

    def _look_at(self, queue: str, shard: int, after: Any, now: datetime) -> int:
        """Renew what is overdue on one page; how much that was."""
        try:
            page = self._store.candidates(
                queue, shard, until=now - LONG_OVERDUE, limit=_PAGE, after=after
            )
        except StoreFailed as failed:
            self._on_error(failed, where=f"reading shard {shard} of queue {queue}")
            return 0
        if page.next is not None:
            with self._lock:
                self._pages.append((queue, shard, page.next))
        for candidate in page.items:
            try:
                self._store.renew(candidate, now=now)
            except (CorruptItem, StoreFailed) as error:
                self._on_error(error, where=f"renewing the body of task {candidate.task_id}")
        return len(page.items)
