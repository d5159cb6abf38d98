"""One queue within one sweep: what is due, less what must wait for a rate limit or for another task of its key."""

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.task import Status
from rdq_core.engine.feed import Feed
from rdq_core.engine.ports import Candidate, Clock, RateLimiter

_FOLLOWERS_KEPT: Final = 32


class Lane:
    """Hands out candidates that may start now. A task whose concurrency key is in use waits its turn without a request.

    `on_deferred` is called for each entry that is passed over.
    """

    def __init__(
        self, queue: str, feed: Feed, limiter: RateLimiter, *, clock: Clock, on_deferred: Callable[[], None]
    ) -> None:
        self._queue = queue
        self._feed = feed
        self._limiter = limiter
        self._clock = clock
        self._on_deferred = on_deferred
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._busy_until: dict[str, datetime] = {}
        self._followers: dict[str, deque[Candidate]] = defaultdict(lambda: deque(maxlen=_FOLLOWERS_KEPT))
        self._next_in_line: deque[Candidate] = deque()
        self._tokens = 0
        self._no_token_until: datetime | None = None

    @property
    def upcoming(self) -> datetime | None:
        """The earliest due time ahead that the last look saw; None when it saw none."""
        return self._feed.upcoming

    def wakes_at(self, now: datetime) -> datetime:
        """When `next` is worth calling again after it has answered None."""
        return max(self._no_token_until or now, self._feed.wakes_at(now))

    def next(self, settings: QueueSettings, *, until: datetime, poll: timedelta, slots: int) -> Candidate | None:
        """A candidate to start now, or None when there is none before `wakes_at`. `slots` are free, this one
        included.
        """
        now = self._clock.now()
        if self._no_token_until is not None and now < self._no_token_until:
            return None
        while (candidate := self._following() or self._feed.next(settings, until=until, poll=poll)) is not None:
            if not self._takes_key(candidate, now):
                self._on_deferred()
            elif self._may_start(
                candidate, settings, now, wanted=min(slots, 1 + len(self._feed.waiting)), again=now + poll
            ):
                return candidate
            else:
                return None
        return None

    def started_nothing(self, candidate: Candidate, *, busy_until: datetime | None = None) -> None:
        """The candidate was not claimed: its token serves the next one. `busy_until`: another host works on its key."""
        with self._lock:
            self._tokens += 1
            if candidate.concurrency_key is not None and busy_until is not None:
                self._busy_until[candidate.concurrency_key] = busy_until
        self.ended(candidate)

    def ended(self, candidate: Candidate) -> None:
        """The candidate's run is over: the next of its key may start."""
        key = candidate.concurrency_key
        if key is None:
            return
        with self._lock:
            self._held.discard(key)
            if self._followers.get(key):
                self._next_in_line.append(self._followers[key].popleft())
            else:
                self._followers.pop(key, None)

    def _following(self) -> Candidate | None:
        with self._lock:
            return self._next_in_line.popleft() if self._next_in_line else None

    def _takes_key(self, candidate: Candidate, now: datetime) -> bool:
        key = candidate.concurrency_key
        if key is None or candidate.status is Status.IN_FLIGHT:  # a lapsed holder has its key already
            return True
        with self._lock:
            if self._busy_until.get(key, now) > now:
                return False
            self._busy_until.pop(key, None)
            if key in self._held:
                self._followers[key].append(candidate)
                return False
            self._held.add(key)
            return True

    def _may_start(
        self, candidate: Candidate, settings: QueueSettings, now: datetime, *, wanted: int, again: datetime
    ) -> bool:
        has_token = False
        try:
            has_token = self._takes_token(settings, now, wanted=wanted)
        finally:
            if not has_token:
                self._puts_back(candidate, again)
        return has_token

    def _takes_token(self, settings: QueueSettings, now: datetime, *, wanted: int) -> bool:
        """One token of the queue's rate limit; several are fetched in one request when more candidates wait."""
        if settings.dispatch.rate_limit is None:
            return True
        with self._lock:
            if self._tokens == 0:
                self._tokens = self._limiter.take(self._queue, wanted, settings.dispatch.rate_limit, now=now)
            if self._tokens == 0:
                return False
            self._tokens -= 1
            return True

    def _puts_back(self, candidate: Candidate, until: datetime) -> None:
        """No token: the candidate stays first in line, and nobody asks again before `until`."""
        self._on_deferred()
        with self._lock:
            self._no_token_until = until
            self._next_in_line.appendleft(candidate)
            if candidate.concurrency_key is not None:
                self._held.discard(candidate.concurrency_key)


class NoLimit:
    """A `RateLimiter` for hosts and tests without one: everything is allowed."""

    def take(self, queue: str, wanted: int, limit: object, *, now: datetime) -> int:  # noqa: ARG002 - as the port has it
        """All that is wanted."""
        return wanted
