"""Which due candidates of one queue may start now, within one sweep.

due reader ──► key free? ──► token? ──► start
               │ no          │ no
               │             └ first in line; no candidate before `no_token_until`
               ├ held by a run of this sweep: follows it, without a request
               ├ the line behind it is full: refused
               └ busy on another host: refused until `busy_until`

held        key → the task of this sweep that has it
followers   key → candidates that start after it, in due order
refused     key → the pass in which a candidate was refused: none of a later due time may start
            in that pass, or it would overtake
tokens      granted by the rate limiter and not used yet; they expire after half a second
"""

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from rdq_core.config.settings import QueueSettings, RateLimit
from rdq_core.domain.task import Status
from rdq_core.domain.times import earliest
from rdq_core.engine.due_reader import DueReader
from rdq_core.engine.ports import Candidate, Clock, RateLimiter

_FOLLOWERS_KEPT: Final = 32
_TOKENS_LAST: Final = timedelta(milliseconds=500)
"""Unused tokens expire after this time: kept ones would add up to more than one burst."""
_SHORTEST_WAIT: Final = timedelta(milliseconds=20)


class Admission:
    """Returns candidates that may start now. `on_deferred` is called for each one passed over.

    `next`, `upcoming` and `wakes_at` are for the scheduler's thread; runs call `put_back` and
    `ended` from theirs.
    """

    def __init__(
        self,
        queue: str,
        due_reader: DueReader,
        limiter: RateLimiter,
        *,
        clock: Clock,
        on_deferred: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._due_reader = due_reader
        self._limiter = limiter
        self._clock = clock
        self._on_deferred = on_deferred
        self._lock = threading.Lock()
        self._held: dict[str, str] = {}
        self._busy_until: dict[str, datetime] = {}
        self._followers: dict[str, dict[str, Candidate]] = {}
        self._refused: dict[str, int] = {}
        self._dropped: list[Candidate] = []
        self._first_in_line: deque[Candidate] = deque()
        self._tokens = 0
        self._tokens_until: datetime | None = None
        self._no_token_until: datetime | None = None

    def upcoming(self, now: datetime) -> datetime | None:
        """The earliest time at which work that is known to wait may start: it becomes due, gets a
        token, or its key is tried again. None when the last look saw none.
        """
        with self._lock:
            busy_until = max(self._busy_until.values(), default=now)
            is_held_back = bool(self._first_in_line) or busy_until > now
        return earliest((self._due_reader.upcoming, self.wakes_at(now) if is_held_back else None))

    def wakes_at(self, now: datetime) -> datetime:
        """When `next` is worth calling again after it has answered None."""
        return max(self._no_token_until or now, self._due_reader.wakes_at(now))

    def next(
        self, settings: QueueSettings, *, until: datetime, poll: timedelta, slots: int
    ) -> Candidate | None:
        """A candidate to start now, or None when there is none before `wakes_at`.

        `slots` are free, this one's included: as many tokens are worth fetching. After a page of
        followers alone it returns None, so that other queues get their turn.
        """
        now = self._clock.now()
        if self._no_token_until is not None and now < self._no_token_until:
            return None
        limit = settings.dispatch.claim_limit
        self._forget_dropped()
        while True:
            with self._lock:
                candidate = self._first_in_line.popleft() if self._first_in_line else None
            if candidate is None:
                candidate = self._due_reader.next(settings, until=until, poll=poll)
                if candidate is None:
                    return None
                if not self._acquire_key(candidate, now):
                    self._on_deferred()
                    if not self._due_reader.waiting:
                        return None
                    continue
            if limit is None or self._acquire_token(candidate, limit, now, slots=slots, poll=poll):
                return candidate
            return None

    def put_back(self, candidate: Candidate, *, busy_until: datetime | None = None) -> None:
        """The candidate was not claimed: the next one gets its token. `busy_until` is set when
        another host works on its key.
        """
        key = candidate.concurrency_key
        with self._lock:
            # Without a rate limit the count is never read.
            self._tokens += 1
            if key is not None and busy_until is not None:
                self._forget_idle_keys()
                self._busy_until[key] = busy_until
                # They start in due order when a later pass reads them again.
                self._dropped += [candidate, *self._followers.pop(key, {}).values()]
                self._mark_refused(key)
        self.ended(candidate)

    def ended(self, candidate: Candidate) -> None:
        """The candidate's run has ended: the next one of its key may start."""
        key = candidate.concurrency_key
        with self._lock:
            if key is None or self._held.get(key) != candidate.task_id:
                return
            del self._held[key]
            followers = self._followers.get(key)
            if followers:
                follower = followers.pop(next(iter(followers)))
                self._first_in_line.append(follower)
                # Held for it at once, or another task of the key could be read and start first.
                self._held[key] = follower.task_id
            if not followers:
                self._followers.pop(key, None)

    # -- keys --------------------------------------------------------------------------------------

    def _acquire_key(self, candidate: Candidate, now: datetime) -> bool:
        key = candidate.concurrency_key
        if key is None:
            return True
        with self._lock:
            # A claim that has lapsed still has its key.
            if candidate.status is Status.IN_FLIGHT:
                self._held.setdefault(key, candidate.task_id)
                return True
            followers = self._followers.get(key, {})
            # Read again while it follows: it keeps its place in the line.
            if candidate.task_id in followers:
                followers[candidate.task_id] = candidate
                return False
            if self._is_refused(key, now):
                # A later pass returns it again, in its place: before those due after it.
                self._mark_refused(key)
                self._due_reader.forget(candidate)
                return False
            if key in self._held:
                self._followers.setdefault(key, {})[candidate.task_id] = candidate
                return False
            self._held[key] = candidate.task_id
            return True

    def _is_refused(self, key: str, now: datetime) -> bool:
        """Whether no candidate of the key may start or follow now: it is busy on another host, its
        line is full, or an earlier candidate was refused in the pass that is being read, or a later
        pass.
        """
        return (
            self._busy_until.get(key, now) > now
            or self._refused.get(key, -1) >= self._due_reader.pass_number
            or (key in self._held and len(self._followers.get(key, ())) >= _FOLLOWERS_KEPT)
        )

    def _mark_refused(self, key: str) -> None:
        number = self._due_reader.pass_number
        if self._refused.get(key) != number:
            # Marks of passes that are over refuse nothing any more.
            oldest = self._due_reader.oldest_pass
            self._refused = {name: last for name, last in self._refused.items() if last >= oldest}
            self._refused[key] = max(number, self._refused.get(key, -1))

    def _forget_dropped(self) -> None:
        """Let candidates that lost their place be returned again; on the scheduler's thread, which
        alone uses the reader.
        """
        with self._lock:
            dropped, self._dropped = self._dropped, []
        for candidate in dropped:
            self._due_reader.forget(candidate)

    def _forget_idle_keys(self) -> None:
        now = self._clock.now()
        self._busy_until = {key: until for key, until in self._busy_until.items() if until > now}

    # -- tokens ------------------------------------------------------------------------------------

    def _acquire_token(
        self, candidate: Candidate, limit: RateLimit, now: datetime, *, slots: int, poll: timedelta
    ) -> bool:
        """Take a token for the candidate, which otherwise stays first in line."""
        has_token = False
        try:
            has_token = self._use_token(now) or self._fetch_tokens(limit, now, slots)
        finally:
            if not has_token:
                filled = max(limit.period / limit.count * limit.burst, _SHORTEST_WAIT)
                self._on_deferred()
                with self._lock:
                    self._no_token_until = now + min(poll, filled)
                    self._first_in_line.appendleft(candidate)
        return has_token

    def _use_token(self, now: datetime) -> bool:
        with self._lock:
            # `put_back` may have added to tokens that have expired.
            if self._tokens_until is None or now >= self._tokens_until:
                self._tokens = 0
            has_one = self._tokens > 0
            self._tokens -= has_one
            return has_one

    def _fetch_tokens(self, limit: RateLimit, now: datetime, slots: int) -> bool:
        """Ask for a token for this candidate, and in the same request for each one that has been
        read and may start as well.
        """
        granted = self._limiter.take(
            self._queue, min(slots, 1 + self._startable(now)), limit, now=now
        )
        with self._lock:
            self._tokens, self._tokens_until = max(granted - 1, 0), now + _TOKENS_LAST
        return granted > 0

    def _startable(self, now: datetime) -> int:
        """The number of other candidates read so far that may start: one of each free key."""
        with self._lock:
            busy = {*self._held, *(key for key, until in self._busy_until.items() if until > now)}
        waiting = self._due_reader.waiting
        free = {candidate.concurrency_key for candidate in waiting} - busy - {None}
        return len(free) + sum(candidate.concurrency_key is None for candidate in waiting)


class NoLimit:
    """A `RateLimiter` for hosts and tests without one: everything is allowed."""

    # The unused arguments are the port's.
    def take(self, queue: str, wanted: int, limit: object, *, now: datetime) -> int:  # noqa: ARG002
        """All that is wanted."""
        return wanted
