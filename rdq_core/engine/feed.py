"""The due work of one queue, read from the index page by page and handed out once.

The index proposes and the table disposes: an entry may be outdated, and a claim that fails for it costs nothing but
itself. What was handed out is not handed out again while the index may still be showing it.
"""

from collections import deque
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.task import Status
from rdq_core.engine.ports import Candidate, Clock, ErrorSink, Jitter, TaskStore
from rdq_core.errors import StoreFailed

_Key = tuple[str, Status, int, datetime]
_REMEMBERED: Final = 4096


class Feed:
    """Candidates of one queue, oldest due first within a shard, all shards in turn from a random start."""

    def __init__(self, queue: str, store: TaskStore, *, clock: Clock, jitter: Jitter, on_error: ErrorSink) -> None:
        self._queue = queue
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._on_error = on_error
        self._pages: deque[tuple[int, Any]] = deque()
        self._buffer: deque[Candidate] = deque()
        self._handed_out: dict[_Key, datetime] = {}
        self._earliest: datetime | None = None
        self._looks_again_at: datetime | None = None

    @property
    def upcoming(self) -> datetime | None:
        """The earliest due time that the last look at all shards saw ahead of it; None when it saw none."""
        return self._earliest

    @property
    def waiting(self) -> int:
        """How many due candidates have been read and not yet handed out."""
        return len(self._buffer)

    def wakes_at(self, now: datetime) -> datetime:
        """When `next` is worth calling again after it has answered None."""
        return max(now, self._looks_again_at or now)

    def next(self, settings: QueueSettings, *, until: datetime, poll: timedelta) -> Candidate | None:
        """A due candidate, or None when there is none before `wakes_at`. Entries due later, up to `until`, are noted.

        All shards are looked at again after `poll` at the latest.
        """
        now = self._clock.now()
        while True:
            while self._buffer:
                candidate = self._buffer.popleft()
                if self._is_new(candidate, now, poll):
                    return candidate
            if not self._pages and not self._begin_look(settings, now):
                return None
            self._read_page(settings, now, until, poll)

    def _begin_look(self, settings: QueueSettings, now: datetime) -> bool:
        if self._looks_again_at is not None and now < self._looks_again_at:
            return False
        shards = settings.shards_ever
        start = int(abs(self._jitter.fraction()) * shards) % shards
        self._pages.extend(((start + step) % shards, None) for step in range(shards))
        self._earliest = None
        self._looks_again_at = now
        return True

    def _read_page(self, settings: QueueSettings, now: datetime, until: datetime, poll: timedelta) -> None:
        shard, after = self._pages.popleft()
        try:
            page = self._store.candidates(
                self._queue, shard, until=until, limit=settings.dispatch.batch_size, after=after
            )
        except StoreFailed as failed:  # one shard that can't be read does not stop the others
            self._on_error(failed, where=f"reading shard {shard} of queue {self._queue}")
        else:
            due = [candidate for candidate in page.items if candidate.due_at <= now]
            self._buffer.extend(self._in_own_order(due))
            self._note(page.items[len(due)].due_at if len(due) < len(page.items) else None)
            if page.next is not None and len(due) == len(page.items):
                self._pages.append((shard, page.next))
        if not self._pages:
            self._looks_again_at = min(now + poll, self._earliest or now + poll)

    def _in_own_order(self, due: list[Candidate]) -> list[Candidate]:
        """The page from a place of our own on, so that two sweepers rarely meet at the same entry."""
        start = int(abs(self._jitter.fraction()) * len(due))
        return due[start:] + due[:start]

    def _note(self, due_at: datetime | None) -> None:
        if due_at is not None:
            self._earliest = due_at if self._earliest is None else min(self._earliest, due_at)

    def _is_new(self, candidate: Candidate, now: datetime, poll: timedelta) -> bool:
        key = (candidate.task_id, candidate.status, candidate.fencing_token, candidate.due_at)
        until = self._handed_out.get(key)
        if until is not None and now < until:
            return False
        self._forget_old(now)
        self._handed_out.pop(key, None)  # so that the oldest stay in front
        self._handed_out[key] = now + max(poll, timedelta(seconds=1))
        return True

    def _forget_old(self, now: datetime) -> None:
        """Drop what the index can't be showing any longer, and in any case all but the latest."""
        while self._handed_out:
            oldest = next(iter(self._handed_out))
            if self._handed_out[oldest] > now and len(self._handed_out) < _REMEMBERED:
                return
            del self._handed_out[oldest]
