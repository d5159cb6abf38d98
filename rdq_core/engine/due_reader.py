"""The due work of one queue, read from the index page by page and handed out once.

The index proposes and the table disposes: an entry may be outdated, and a claim that fails for it
costs nothing but itself. What was handed out is not handed out again while the index may still be
showing it.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.task import Status
from rdq_core.engine.ports import Candidate, Clock, ErrorSink, Jitter, Page, TaskStore
from rdq_core.errors import StoreFailed

_Key = tuple[str, Status, int, datetime]
_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to read on in a shard, in a pass over what was due at `since`; `after` None is the
    front.
    """

    shard: int
    since: datetime
    after: Any = None


class DueReader:
    """Candidates of one queue, oldest due first within a shard, all shards in turn from a random
    start.

    The front of every shard is read again each `poll`, also while a pass over a long backlog goes
    on: what is due first there may have been passed over, or have become due since. And a pass ends
    where it began in time, so that a stream of new work can't keep it from beginning anew. `share`
    are the shards to read, None all of them.
    """

    def __init__(
        self,
        queue: str,
        store: TaskStore,
        *,
        clock: Clock,
        jitter: Jitter,
        on_error: ErrorSink,
        share: Sequence[int] | None = None,
    ) -> None:
        self._queue = queue
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._on_error = on_error
        self._share = share
        self._places: deque[_Place] = deque()
        self._buffer: deque[Candidate] = deque()
        self._handed_out: dict[_Key, datetime] = {}
        self._earliest: datetime | None = None
        self._looks_again_at: datetime | None = None
        self._has_more = False

    @property
    def upcoming(self) -> datetime | None:
        """The earliest due time that the last look at all shards saw ahead of it; None when it saw
        none.
        """
        return self._earliest

    @property
    def waiting(self) -> Sequence[Candidate]:
        """The due candidates that have been read and not yet handed out."""
        return self._buffer

    def wakes_at(self, now: datetime) -> datetime:
        """When `next` is worth calling again after it has answered None. Now, where it only let
        others have a turn.
        """
        if self._buffer or self._places:
            return now
        return max(now, self._looks_again_at or now)

    def next(
        self, settings: QueueSettings, *, until: datetime, poll: timedelta
    ) -> Candidate | None:
        """A due candidate, or None when there is none before `wakes_at`. Entries due later, up to
        `until`, are noted.

        Where a whole page was handed out before, None lets other queues have their turn.
        """
        now = self._clock.now()
        if self._looks_again_at is None or now >= self._looks_again_at:
            self._begin_look(settings, now, poll)
        while True:
            passed_over = bool(self._buffer)
            while self._buffer:
                candidate = self._buffer.popleft()
                if self._is_new(candidate, now, poll):
                    return candidate
            if passed_over or not self._places:
                return None
            self._read(self._places.popleft(), settings, max(until, now), poll)

    def _begin_look(self, settings: QueueSettings, now: datetime, poll: timedelta) -> None:
        shards = settings.shards_ever
        start = int(abs(self._jitter.fraction()) * shards) % shards
        unread = {place.shard for place in self._places if place.after is None}
        order = ((start + step) % shards for step in range(shards))
        mine = (shard for shard in order if self._share is None or shard in self._share)
        self._places.extend(_Place(shard, now) for shard in mine if shard not in unread)
        self._earliest, self._has_more = None, False
        self._looks_again_at = now + poll

    def _read(
        self, place: _Place, settings: QueueSettings, until: datetime, poll: timedelta
    ) -> None:
        now = self._clock.now()
        try:
            page = self._store.candidates(
                self._queue,
                place.shard,
                until=until,
                limit=settings.dispatch.batch_size,
                after=place.after,
            )
        except StoreFailed as failed:  # one shard that can't be read does not stop the others
            self._on_error(failed, where=f"reading shard {place.shard} of queue {self._queue}")
        else:
            due = [candidate for candidate in page.items if candidate.due_at <= now]
            self._buffer.extend(self._in_own_order(due))
            if len(due) < len(page.items):
                self._note(page.items[len(due)].due_at)
            elif page.next is not None:
                self._go_on(place, page)
        if not self._places:
            self._looks_again_at = (
                now if self._has_more else min(now + poll, self._earliest or now + poll)
            )

    def _go_on(self, place: _Place, page: Page[Candidate]) -> None:
        """Behind a page that was all due: in this pass, in the one that is there already, or in the
        next one.
        """
        if any(other.shard == place.shard for other in self._places):
            return
        if page.items and page.items[-1].due_at > place.since:
            self._has_more = True
        else:
            self._places.append(_Place(place.shard, place.since, page.next))

    def _in_own_order(self, due: list[Candidate]) -> list[Candidate]:
        """The page from a place of our own on, so that two sweepers rarely meet at the same entry.

        Those of one key keep their order: each waits for the one before it anyway.
        """
        start = int(abs(self._jitter.fraction()) * len(due))
        lines: dict[str | None, deque[Candidate]] = defaultdict(deque)
        for each in due:
            lines[each.concurrency_key].append(each)
        mine = due[start:] + due[:start]
        return [
            each if each.concurrency_key is None else lines[each.concurrency_key].popleft()
            for each in mine
        ]

    def _note(self, due_at: datetime) -> None:
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
