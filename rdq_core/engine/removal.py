"""Ends the deletion of queues: an empty one becomes a tombstone, and one in which a task turns up
is opened again.

    deleting ── six minutes ── empty ── a second ── empty ──► tombstone
        ▲                                                        │ a task turns up: reported
        └────────────────────────────────────────────────────────┘

A submit prepared before the deletion began may still commit within the six minutes. The index lags
the table, so a queue is read twice, and tombstones are looked at again later.
"""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.config.stored import StoredQueue
from rdq_core.engine.auditor import Auditor
from rdq_core.engine.ports import Clock, ErrorSink, QueueStore, Sleeper, TaskStore
from rdq_core.errors import ConfigInvalid, CorruptItem, QueueNotFound, StoreFailed, Unavailable

REFUSES_FOR: Final = timedelta(minutes=6)
"""How long a queue refuses submits before it is read: by then every submitter's cached
configuration, and what it prepared with it, has expired.
"""
BETWEEN_READINGS: Final = timedelta(seconds=1)

_LOOKS_AGAIN: Final = timedelta(minutes=1)
_WATCHED_CLOSELY: Final = timedelta(days=1)
_WATCHED_LATER: Final = timedelta(days=1)
_AHEAD: Final = timedelta(days=400)
_PAGE: Final = 100


class Removals:
    """Ends deletions. Every host may; of several that would look at the same time one does."""

    def __init__(
        self,
        queues: QueueStore,
        store: TaskStore,
        auditor: Auditor,
        *,
        clock: Clock,
        on_error: ErrorSink,
    ) -> None:
        self._queues = queues
        self._store = store
        self._auditor = auditor
        self._clock = clock
        self._on_error = on_error
        self._found_empty: dict[tuple[str, datetime | None], datetime] = {}

    def run(self) -> None:
        """Look at every leaving queue whose time has come. Errors are reported and stop nothing."""
        for stored in self._leaving():
            try:
                self._look(stored)
            except (CorruptItem, ConfigInvalid, QueueNotFound, StoreFailed, Unavailable) as error:
                self._on_error(error, where=f"deletion of queue {stored.queue}")

    def finish(self, stored: StoredQueue, sleeper: Sleeper) -> bool:
        """End a deletion now, if its time has come and two readings find no task. Whether it has
        ended.
        """
        if (
            stored.is_deleted
            or stored.deleting_at is None
            or self._clock.now() < stored.deleting_at + REFUSES_FOR
        ):
            return stored.is_deleted
        if not self._is_empty(stored):
            return False
        sleeper.wait(threading.Event(), BETWEEN_READINGS / timedelta(seconds=1))
        return self._is_empty(stored) and self._end(stored)

    def _leaving(self) -> Iterator[StoredQueue]:
        try:
            stored = self._queues.all_stored()
        except (StoreFailed, Unavailable):  # the sweep reports that it can't read a configuration
            return
        yield from (queue for queue in stored.values() if queue.is_leaving)

    def _look(self, stored: StoredQueue) -> None:
        reading = (stored.queue, stored.deleting_at)
        is_second = reading in self._found_empty
        if not self._is_due(stored, self._found_empty.get(reading)):
            return
        self._found_empty.pop(reading, None)
        if not is_second and not self._queues.note_look(stored, now=self._clock.now()):
            return
        is_empty = self._is_empty(stored)
        if stored.is_deleted and not is_empty:
            self._reopen(stored)
        elif is_empty and not stored.is_deleted and is_second:
            self._end(stored)
        elif is_empty and not stored.is_deleted:
            self._found_empty[reading] = self._clock.now()

    def _is_due(self, stored: StoredQueue, found_empty: datetime | None) -> bool:
        now, looked_at = self._clock.now(), stored.looked_at
        if stored.deleted_at is not None:
            every = _LOOKS_AGAIN if now - stored.deleted_at < _WATCHED_CLOSELY else _WATCHED_LATER
            return now >= (looked_at or stored.deleted_at) + every
        if found_empty is not None:
            return now >= found_empty + BETWEEN_READINGS
        refused_long_enough = (
            stored.deleting_at is not None and now >= stored.deleting_at + REFUSES_FOR
        )
        return refused_long_enough and (looked_at is None or now >= looked_at + _LOOKS_AGAIN)

    def _end(self, stored: StoredQueue) -> bool:
        with self._auditor.recorded("queue.delete.end", stored.queue) as result:
            ended = self._queues.end_delete(stored, now=self._clock.now())
            result["ended"] = ended
        return ended

    def _reopen(self, stored: StoredQueue) -> None:
        with self._auditor.recorded(
            "queue.delete.reopen", stored.queue, reason="a task was found"
        ) as result:
            result["reopened"] = self._queues.reopen(stored, now=self._clock.now())
        problem = QueueNotFound(
            f"queue {stored.queue} was deleted, and a task was found in it:"
            " it is being deleted again",
            hint="a host still had old configuration, or its clock is wrong;"
            " the task is run as before",
        )
        self._on_error(problem, where=f"deletion of queue {stored.queue}")

    # -- reading -----------------------------------------------------------------------------------

    def _is_empty(self, stored: StoredQueue) -> bool:
        """Whether no task waits, runs or is dead. Succeeded and cancelled tasks may remain: TTL
        removes them.
        """
        now = self._clock.now()
        until = now + _AHEAD
        for shard in range(stored.settings(now).shards_ever):
            page = self._store.candidates(stored.queue, shard, until=until, limit=1)
            if page.items or page.next is not None:
                return False
        return not self._has_dead(stored.queue)

    def _has_dead(self, queue: str) -> bool:
        handle: Any = None
        while True:
            page = self._store.dead(queue, limit=_PAGE, after=handle)
            if page.items or page.next is None:
                return bool(page.items)
            handle = page.next
