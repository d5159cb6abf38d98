"""One queue within one sweep: what is due, less what must wait for a rate limit or for another task
of its key.
"""

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from rdq_core.config.settings import QueueSettings, RateLimit
from rdq_core.domain.task import Status
from rdq_core.engine.due_reader import DueReader
from rdq_core.engine.ports import Candidate, Clock, RateLimiter

_FOLLOWERS_KEPT: Final = 32
_TOKENS_LAST: Final = timedelta(milliseconds=500)
"""A token that serves nobody for so long is forfeited: kept ones would add up to more than one
burst.
"""
_SHORTEST_WAIT: Final = timedelta(milliseconds=20)


class Admission:
    """Hands out candidates that may start now. A task whose concurrency key is in use waits its
    turn without a request.

    `on_deferred` is called for each entry that is passed over.
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
        self._next_in_line: deque[Candidate] = deque()
        self._tokens = 0
        self._tokens_until: datetime | None = None
        self._no_token_until: datetime | None = None

    def upcoming(self, now: datetime) -> datetime | None:
        """When work that is known to wait may start, at the earliest: it becomes due, or is looked
        at once more after it had no token or a busy key. None when the last look saw none.
        """
        with self._lock:
            is_held_back = bool(self._next_in_line) or any(
                until > now for until in self._busy_until.values()
            )
        moments = (self._due_reader.upcoming, self.wakes_at(now) if is_held_back else None)
        return min((moment for moment in moments if moment is not None), default=None)

    def wakes_at(self, now: datetime) -> datetime:
        """When `next` is worth calling again after it has answered None."""
        return max(self._no_token_until or now, self._due_reader.wakes_at(now))

    def next(
        self, settings: QueueSettings, *, until: datetime, poll: timedelta, slots: int
    ) -> Candidate | None:
        """A candidate to start now, or None when there is none before `wakes_at`. `slots` are free,
        this one included. Behind a page of nothing but followers, None lets other queues have their
        turn.
        """
        now = self._clock.now()
        if self._no_token_until is not None and now < self._no_token_until:
            return None
        while (
            candidate := (in_line := self._following())
            or self._due_reader.next(settings, until=until, poll=poll)
        ) is not None:
            if in_line is not None or self._takes_key(candidate, now):
                return (
                    candidate
                    if self._may_start(candidate, settings, now, slots=slots, poll=poll)
                    else None
                )
            self._on_deferred()
            if not self._due_reader.waiting:
                return None
        return None

    def started_nothing(self, candidate: Candidate, *, busy_until: datetime | None = None) -> None:
        """The candidate was not claimed: its token serves the next one. `busy_until`: another host
        works on its key.
        """
        key = candidate.concurrency_key
        with self._lock:
            self._tokens += 1
            if key is not None and busy_until is not None:
                self._forget_idle_keys()
                self._busy_until[key] = busy_until
                self._followers.pop(key, None)  # who is first among them will be seen again by then
        self.ended(candidate)

    def ended(self, candidate: Candidate) -> None:
        """The candidate's run is over: the next of its key may start."""
        key = candidate.concurrency_key
        with self._lock:
            if key is None or self._held.get(key) != candidate.task_id:
                return
            del self._held[key]
            followers = self._followers.get(key)
            if followers:
                follower = followers.pop(next(iter(followers)))
                self._next_in_line.append(follower)
                self._held[key] = follower.task_id  # before another of the key is read
            if not followers:
                self._followers.pop(key, None)

    def _following(self) -> Candidate | None:
        with self._lock:
            return self._next_in_line.popleft() if self._next_in_line else None

    # -- keys --------------------------------------------------------------------------------------

    def _takes_key(self, candidate: Candidate, now: datetime) -> bool:
        key = candidate.concurrency_key
        if key is None:
            return True
        with self._lock:
            if candidate.status is Status.IN_FLIGHT:  # a lapsed holder has its key already
                self._held.setdefault(key, candidate.task_id)
                return True
            if self._busy_until.get(key, now) > now:
                return False
            if key in self._held:
                self._follows(key, candidate)
                return False
            self._held[key] = candidate.task_id
            return True

    def _follows(self, key: str, candidate: Candidate) -> None:
        """It waits in line, once however often it is seen. Behind a long line it is left to a later
        look.
        """
        followers = self._followers.setdefault(key, {})
        if candidate.task_id in followers or len(followers) < _FOLLOWERS_KEPT:
            followers[candidate.task_id] = candidate

    def _forget_idle_keys(self) -> None:
        now = self._clock.now()
        self._busy_until = {key: until for key, until in self._busy_until.items() if until > now}

    # -- tokens ------------------------------------------------------------------------------------

    def _may_start(
        self,
        candidate: Candidate,
        settings: QueueSettings,
        now: datetime,
        *,
        slots: int,
        poll: timedelta,
    ) -> bool:
        limit, has_token = settings.dispatch.claim_limit, False
        if limit is None:
            return True
        try:
            has_token = self._has_token(now) or self._fetches_tokens(limit, now, slots)
        finally:
            if not has_token:
                filled = max(limit.period / limit.count * limit.burst, _SHORTEST_WAIT)
                self._puts_back(candidate, now + min(poll, filled))
        return has_token

    def _has_token(self, now: datetime) -> bool:
        with self._lock:
            if self._tokens_until is None or now >= self._tokens_until:
                self._tokens = 0
            has_one = self._tokens > 0
            self._tokens -= has_one
            return has_one

    def _fetches_tokens(self, limit: RateLimit, now: datetime, slots: int) -> bool:
        """One for this candidate, and in the same request one for each that has been read and may
        start as well.
        """
        granted = self._limiter.take(
            self._queue, min(slots, 1 + self._startable(now)), limit, now=now
        )
        with self._lock:
            self._tokens, self._tokens_until = max(granted - 1, 0), now + _TOKENS_LAST
        return granted > 0

    def _startable(self, now: datetime) -> int:
        """How many of those that have been read may start besides: one of each key that nobody
        holds.
        """
        with self._lock:
            busy = {*self._held, *(key for key, until in self._busy_until.items() if until > now)}
        waiting = self._due_reader.waiting
        free = {candidate.concurrency_key for candidate in waiting} - busy - {None}
        return len(free) + sum(candidate.concurrency_key is None for candidate in waiting)

    def _puts_back(self, candidate: Candidate, until: datetime) -> None:
        """No token: the candidate stays first in line, and nobody asks again before `until`."""
        self._on_deferred()
        with self._lock:
            self._no_token_until = until
            self._next_in_line.appendleft(candidate)


class NoLimit:
    """A `RateLimiter` for hosts and tests without one: everything is allowed."""

    # as the port has it
    def take(self, queue: str, wanted: int, limit: object, *, now: datetime) -> int:  # noqa: ARG002
        """All that is wanted."""
        return wanted
