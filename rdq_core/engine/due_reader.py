"""Reads the due work of one queue from its index, page by page.

An index entry may be outdated: the claim's condition on the row decides, and a claim that fails
costs only itself. A candidate that was returned once is not returned again while the index may
still show its old entry.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.task import Status
from rdq_core.engine.ports import Candidate, Clock, ErrorSink, Jitter, Page, TaskStore
from rdq_core.errors import StoreFailed

_Key = tuple[str, Status, int, datetime]
_REMEMBERED: Final = 4096
"""The most candidates that are remembered as returned. Forgetting one too early costs a claim that
fails.
"""


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Where to read on in a shard: the page behind `after`, None the first, in a pass that began at
    `since`. `pass_number` is given when the first page is read, and grows with each pass.
    """

    shard: int
    since: datetime
    after: Any = None
    pass_number: int = 0


class DueReader:
    """Candidates of one queue, oldest due first within a shard, all shards in turn from a random
    one on.

    The front of every shard is read again each `poll`, even during a pass over a long backlog:
    tasks there may have been passed over, or have become due since. A pass ends at what was due
    when it began, so that a stream of new work can't keep the next pass from starting. `share` are
    the shards to read, None all.
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
        self.upcoming: datetime | None = None
        """The earliest future due time that the last look at all shards saw; None for none."""
        self.pass_number = 0
        """The number of the pass in which the last candidate was read. Passes that read their first
        page later have higher numbers.
        """
        self._queue = queue
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._on_error = on_error
        self._share = share
        self._cursors: deque[_Cursor] = deque()
        self._buffer: deque[Candidate] = deque()
        self._returned: dict[_Key, datetime] = {}
        self._looks_again_at: datetime | None = None
        self._has_more = False
        self._passes = 0

    @property
    def oldest_pass(self) -> int:
        """The lowest number that a candidate may still be read in. For any thread."""
        # A copy, which is made in one step: the scheduler's thread may be moving the cursors.
        cursors = tuple(self._cursors)
        begun = (cursor.pass_number for cursor in cursors if cursor.after is not None)
        return min(begun, default=self.pass_number)

    def forget(self, candidate: Candidate) -> None:
        """Return the candidate again when a pass reads it: it was refused, not started."""
        self._returned.pop(_key_of(candidate), None)

    @property
    def waiting(self) -> Sequence[Candidate]:
        """The due candidates that have been read and not returned yet."""
        return self._buffer

    def wakes_at(self, now: datetime) -> datetime:
        """When to call `next` again after it has returned None; `now` if it has more to read."""
        if self._buffer or self._cursors:
            return now
        return max(now, self._looks_again_at or now)

    def next(
        self, settings: QueueSettings, *, until: datetime, poll: timedelta
    ) -> Candidate | None:
        """A due candidate, or None when there is none before `wakes_at`. The first entry due later,
        up to `until`, sets `upcoming`.

        After a page of which every entry was returned before it also returns None, so that other
        queues get their turn.
        """
        now = self._clock.now()
        if self._looks_again_at is None or now >= self._looks_again_at:
            self._begin_look(settings, now, poll)
        while True:
            # Entries left from an earlier call: if all of them turn out old, other queues go first.
            passed_over = bool(self._buffer)
            while self._buffer:
                candidate = self._buffer.popleft()
                if self._is_new(candidate, now, poll):
                    return candidate
            if passed_over or not self._cursors:
                return None
            self._read(self._cursors.popleft(), settings, max(until, now), poll)

    def _begin_look(self, settings: QueueSettings, now: datetime, poll: timedelta) -> None:
        # All shards that have ever held tasks, not only today's `index_shards`.
        shards = settings.shards_ever
        start = int(abs(self._jitter.fraction()) * shards) % shards
        # A shard whose first page is still unread needs no second pass over the same page.
        unread = {cursor.shard for cursor in self._cursors if cursor.after is None}
        for shard in (*range(start, shards), *range(start)):
            if shard not in unread and (self._share is None or shard in self._share):
                self._cursors.append(_Cursor(shard, now))
        self.upcoming, self._has_more = None, False
        self._looks_again_at = now + poll

    def _read(
        self, cursor: _Cursor, settings: QueueSettings, until: datetime, poll: timedelta
    ) -> None:
        # Taken before the read: what becomes due meanwhile is noted as upcoming, and not missed.
        now = self._clock.now()
        if cursor.after is None:
            self._passes += 1
            cursor = replace(cursor, pass_number=self._passes)
        try:
            page = self._store.candidates(
                self._queue,
                cursor.shard,
                until=until,
                limit=settings.dispatch.batch_size,
                after=cursor.after,
            )
        except StoreFailed as failed:  # the other shards are read all the same
            self._on_error(failed, where=f"reading shard {cursor.shard} of queue {self._queue}")
        else:
            due = [candidate for candidate in page.items if candidate.due_at <= now]
            self._buffer.extend(self._in_own_order(due))
            # `next` reads only when the buffer is empty: all of it is from one pass.
            self.pass_number = cursor.pass_number
            if len(due) < len(page.items):
                self._note(page.items[len(due)].due_at)
            elif page.next is not None:
                self._go_on(cursor, page)
        if not self._cursors:
            self._looks_again_at = (
                now if self._has_more else min(now + poll, self.upcoming or now + poll)
            )

    def _go_on(self, cursor: _Cursor, page: Page[Candidate]) -> None:
        """Continue behind a page that was all due: in this pass, unless the shard has a cursor
        already, or the page reaches past the pass's beginning and the next pass reads on.
        """
        if any(other.shard == cursor.shard for other in self._cursors):
            return
        if page.items and page.items[-1].due_at > cursor.since:
            self._has_more = True
        else:
            self._cursors.append(replace(cursor, after=page.next))

    def _in_own_order(self, due: list[Candidate]) -> list[Candidate]:
        """The page rotated to a random start, so that two sweepers rarely try the same entry.

        Tasks of one key keep their due order: each waits for the one before it anyway.
        """
        start = int(abs(self._jitter.fraction()) * len(due))
        lines: dict[str | None, deque[Candidate]] = defaultdict(deque)
        for each in due:
            lines[each.concurrency_key].append(each)
        rotated = due[start:] + due[:start]
        return [
            each if each.concurrency_key is None else lines[each.concurrency_key].popleft()
            for each in rotated
        ]

    def _note(self, due_at: datetime) -> None:
        self.upcoming = due_at if self.upcoming is None else min(self.upcoming, due_at)

    def _is_new(self, candidate: Candidate, now: datetime, poll: timedelta) -> bool:
        key = _key_of(candidate)
        until = self._returned.get(key)
        if until is not None and now < until:
            return False
        self._forget_old(now)
        # Removed first, so that the dict stays ordered by age.
        self._returned.pop(key, None)
        # The index may lag a claim: DynamoDB's global secondary indexes are eventually consistent,
        # usually within a second.
        self._returned[key] = now + max(poll, timedelta(seconds=1))
        return True

    def _forget_old(self, now: datetime) -> None:
        """Drop entries that the index no longer shows, and the oldest ones above the bound."""
        while self._returned:
            oldest = next(iter(self._returned))
            if self._returned[oldest] > now and len(self._returned) < _REMEMBERED:
                return
            del self._returned[oldest]


def _key_of(candidate: Candidate) -> _Key:
    return (candidate.task_id, candidate.status, candidate.fencing_token, candidate.due_at)
