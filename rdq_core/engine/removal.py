"""Completes deletions of queues: an empty one becomes a tombstone, and one that turns out to hold a
task is deleted anew.

    deleting ── 6 min ── empty ── 1 s ── empty ──► tombstone ── a task ──► deleting, and an error

A submit that was prepared before the deletion began may still commit within six minutes. The index
lags the table, hence the second check after a second, and the checks of the tombstone afterwards.
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
"""How long a queue refuses submits before its first check: a submitter's cached configuration, and
what it prepared with it, expire before that.
"""
BETWEEN_CHECKS: Final = timedelta(seconds=1)

_CHECKED_EVERY: Final = timedelta(minutes=1)
_OLD_AFTER: Final = timedelta(days=1)
"""The age from which a tombstone is checked once in `_OLD_CHECKED_EVERY`."""
_OLD_CHECKED_EVERY: Final = timedelta(days=1)
_AHEAD: Final = timedelta(days=400)
_PAGE: Final = 100


class Removals:
    """Completes deletions. Every host does; of several that are about to check a queue at the same
    time, one does.
    """

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
        """Check every queue that is due. Failures are reported and stop nothing: the next run tries
        again.
        """
        for stored in self._being_deleted():
            try:
                self._check(stored)
            except (CorruptItem, ConfigInvalid, QueueNotFound, StoreFailed, Unavailable) as error:
                self._on_error(error, where=f"deletion of queue {stored.queue}")

    def finish(self, stored: StoredQueue, sleeper: Sleeper) -> bool:
        """Complete a deletion now, if it is due and two checks find the queue empty. Whether it is
        complete.
        """
        if (
            stored.is_deleted
            or stored.deleting_at is None
            or self._clock.now() < stored.deleting_at + REFUSES_FOR
        ):
            return stored.is_deleted
        if not self._is_empty(stored):
            return False
        sleeper.wait(threading.Event(), BETWEEN_CHECKS / timedelta(seconds=1))
        return self._is_empty(stored) and self._end(stored)

    def _being_deleted(self) -> Iterator[StoredQueue]:
        try:
            stored = self._queues.all_stored()
        except (StoreFailed, Unavailable):
            return  # The sweep reports a configuration that it can't read.
        for queue in stored.values():
            if queue.is_leaving:
                yield queue

    def _check(self, stored: StoredQueue) -> None:
        deletion = (stored.queue, stored.deleting_at)
        is_second = deletion in self._found_empty
        if not self._is_due(stored, self._found_empty.get(deletion)):
            return
        self._found_empty.pop(deletion, None)
        # Of the hosts that are about to make a first check, the one that records it makes it. The
        # second check is that host's, a second later or more, and needs no record.
        if not is_second and not self._queues.note_look(stored, now=self._clock.now()):
            return
        is_empty = self._is_empty(stored)
        if stored.is_deleted and not is_empty:
            self._reopen(stored)
        elif is_empty and not stored.is_deleted and is_second:
            self._end(stored)
        elif is_empty and not stored.is_deleted:
            self._found_empty[deletion] = self._clock.now()

    def _is_due(self, stored: StoredQueue, found_empty: datetime | None) -> bool:
        now, looked_at = self._clock.now(), stored.looked_at
        if stored.deleted_at is not None:
            is_old = now - stored.deleted_at >= _OLD_AFTER
            every = _OLD_CHECKED_EVERY if is_old else _CHECKED_EVERY
            return now >= (looked_at or stored.deleted_at) + every
        if found_empty is not None:
            return now >= found_empty + BETWEEN_CHECKS
        refused_long_enough = (
            stored.deleting_at is not None and now >= stored.deleting_at + REFUSES_FOR
        )
        return refused_long_enough and (looked_at is None or now >= looked_at + _CHECKED_EVERY)

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
            f"queue {stored.queue} was deleted, and a task was found in it: it is deleted again",
            hint="a host had old configuration or a wrong clock; the task runs as before",
        )
        self._on_error(problem, where=f"deletion of queue {stored.queue}")

    # -- reading -----------------------------------------------------------------------------------

    def _is_empty(self, stored: StoredQueue) -> bool:
        """Whether no task waits, runs or is dead. Ones that succeeded or were cancelled may remain,
        until TTL removes them.
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
