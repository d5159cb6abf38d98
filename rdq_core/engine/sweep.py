"""One sweep: due work of many queues, claimed as slots get free, run side by side, and reported on.

Any number of sweeps may overlap, on one machine or many. No lock decides who may: claims do. A lease is never held on
work that isn't starting at once, since a claim is made by the very thread that then runs it.
"""

import functools
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from rdq_core.config.settings import Host, QueueSettings
from rdq_core.domain.lease import Claim
from rdq_core.engine.claims import Claimer
from rdq_core.engine.feed import Feed
from rdq_core.engine.lane import Lane
from rdq_core.engine.ports import (
    KEY_BUSY,
    Candidate,
    Clock,
    ErrorSink,
    HandlerSource,
    Jitter,
    KeyBusy,
    QueueSource,
    RateLimiter,
    Sleeper,
    TaskStore,
)
from rdq_core.engine.reconcile import Reconcilers
from rdq_core.engine.report import Resolution, SweepReport, Tally
from rdq_core.engine.run import Runner
from rdq_core.engine.stopping import Stop
from rdq_core.errors import ConfigInvalid, CorruptItem, QueueNotFound, StoreFailed

_FAR_AHEAD: Final = timedelta(days=1)
_LONGEST_WAIT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLimits:
    """When a sweep ends.

    After `deadline` nothing is claimed. With nothing under way and nothing due within `horizon` of the last thing that
    happened, the sweep looks for `linger` more and returns; None never returns by itself. `max_tasks` bounds the
    claims.
    """

    deadline: datetime | None = None
    horizon: timedelta | None = timedelta(seconds=75)
    linger: timedelta = timedelta(seconds=2)
    max_tasks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepParts:
    """What a sweep works with. `serves` are the queues, `host` is the kind of host that this is."""

    store: TaskStore
    queues: QueueSource
    handlers: HandlerSource
    claimer: Claimer
    runner: Runner
    limiter: RateLimiter
    reconcilers: Reconcilers
    serves: Sequence[str]
    host: Host
    clock: Clock
    jitter: Jitter
    idle: Sleeper
    busy: Sleeper
    on_error: ErrorSink


class Slots:
    """How many handlers of each queue are running in this process. A handler that ignores its end keeps its slot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, queue: str, limit: int) -> bool:
        """One more, unless `limit` are taken."""
        with self._lock:
            if self._taken[queue] >= limit:
                return False
            self._taken[queue] += 1
            return True

    def taken(self, queue: str) -> int:
        """How many are taken."""
        with self._lock:
            return self._taken[queue]

    def give_back(self, queue: str) -> None:
        """One less."""
        with self._lock:
            self._taken[queue] -= 1


class Sweeper:
    """Sweeps the queues that this host serves. One object a process; its slots outlive the single sweep."""

    def __init__(self, parts: SweepParts) -> None:
        self._parts = parts
        self.slots = Slots()

    def sweep(self, limits: SweepLimits, stop: Stop | None = None) -> SweepReport:
        """Sweep until the limits say so or `stop` is requested. Never raises for a task's failure."""
        return _Sweep(self._parts, self.slots, limits, stop or Stop()).run()


class _Sweep:
    """The state of one sweep."""

    def __init__(self, parts: SweepParts, slots: Slots, limits: SweepLimits, stop: Stop) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._slots = slots
        self._limits = limits
        self._stop = stop
        self._tally = Tally()
        self._changed = threading.Event()
        self._under_way = 0
        self._started = 0
        self._lock = threading.Lock()
        self._last_event = parts.clock.now()
        self._idle_since: datetime | None = None
        self._next_cycle = self._last_event
        self._upcoming: dict[str, datetime] = {}
        self._lanes = {queue: self._lane(queue) for queue in parts.serves}

    def _lane(self, queue: str) -> Lane:
        parts = self._parts
        feed = Feed(queue, parts.store, clock=parts.clock, jitter=parts.jitter, on_error=parts.on_error)
        return Lane(
            queue, feed, parts.limiter, clock=parts.clock, on_deferred=lambda: self._tally.add(queue, "deferred")
        )

    def run(self) -> SweepReport:
        with self._stop.waking(self._changed):
            while not self._is_over():
                self._changed.clear()
                self._reconcile()
                wakes = [self._serve(queue, lane) for queue, lane in self._lanes.items()]
                next_look = min((moment for moment in wakes if moment is not None), default=None)
                if self._is_done(next_look):
                    break
                self._wait(next_look)
            self._wait_for_runs()
        return self._tally.report()

    def _reconcile(self) -> None:
        """Before each cycle of claims, the first included; a run that ends begins no new cycle."""
        now = self._clock.now()
        if now >= self._next_cycle:
            self._next_cycle = now + _LONGEST_WAIT
            self._parts.reconcilers.run()

    # -- when to go on ------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether nothing more may be claimed."""
        deadline = self._limits.deadline
        spent = self._limits.max_tasks is not None and self._started >= self._limits.max_tasks
        return self._stop.requested or spent or (deadline is not None and self._clock.now() >= deadline)

    def _is_done(self, next_look: datetime | None) -> bool:
        """Whether looks over at least `linger` have found nothing to do or to wait for."""
        if self._limits.horizon is None:
            return False
        now = self._clock.now()
        has_more = next_look is not None and next_look <= now
        if self._under_way or has_more or any(moment <= self._horizon for moment in self._upcoming.values()):
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or now
        return now - self._idle_since >= self._limits.linger

    @property
    def _horizon(self) -> datetime:
        if self._limits.horizon is None:
            return self._clock.now() + _FAR_AHEAD
        # What is due has to be seen however long ago the last thing happened: a slow handler may still be under way.
        return max(self._clock.now(), self._last_event + self._limits.horizon)

    def _wait(self, until: datetime | None) -> None:
        """Until then, or a run ends, or the stop is requested. None leaves it to the end of a run."""
        now = self._clock.now()
        moments = (now + _LONGEST_WAIT, until, self._limits.deadline)
        seconds = (min(moment for moment in moments if moment is not None) - now) / timedelta(seconds=1)
        sleeper = self._parts.busy if self._under_way else self._parts.idle
        if seconds > 0:
            sleeper.wait(self._changed, seconds)

    def _wait_for_runs(self) -> None:
        while True:
            self._changed.clear()
            if not self._under_way:
                return
            self._parts.busy.wait(self._changed, _LONGEST_WAIT / timedelta(seconds=1))

    # -- one queue ----------------------------------------------------------------------------------------------

    def _serve(self, queue: str, lane: Lane) -> datetime | None:
        """Start what is due, as far as slots are free. When to come back: None is when a slot gets free."""
        settings = self._settings(queue)
        if settings is None or settings.paused or settings.host not in (self._parts.host, Host.ANY):
            self._upcoming.pop(queue, None)
            return self._clock.now() + _LONGEST_WAIT
        most = settings.dispatch.concurrency
        for _ in range(most):  # no more in one turn, or handlers that are fast would keep the other queues waiting
            if self._is_over() or not self._slots.take(queue, most):
                return None
            free = most - self._slots.taken(queue) + 1
            candidate = self._next(lane, settings, free)
            if candidate is None:
                self._slots.give_back(queue)
                self._note_upcoming(queue, lane.upcoming)
                return lane.wakes_at(self._clock.now())
            self._start(candidate, settings)
        return self._clock.now()

    def _next(self, lane: Lane, settings: QueueSettings, free: int) -> Candidate | None:
        try:
            return lane.next(settings, until=self._horizon, poll=self._poll(settings), slots=free)
        except StoreFailed as failed:  # nothing starts without a token, and nothing else stops for it
            self._parts.on_error(failed, where=f"rate limit of queue {settings.queue}")
            return None
        except BaseException:
            self._slots.give_back(settings.queue)
            raise

    def _poll(self, settings: QueueSettings) -> timedelta:
        """How often to look. A sweep that will end by itself must not miss what comes in while it goes on."""
        interval = settings.dispatch.poll_interval
        return interval if self._limits.horizon is None else min(interval, _LONGEST_WAIT)

    def _note_upcoming(self, queue: str, moment: datetime | None) -> None:
        if moment is None:
            self._upcoming.pop(queue, None)
        else:
            self._upcoming[queue] = moment

    def _settings(self, queue: str) -> QueueSettings | None:
        try:
            return self._parts.queues.settings(queue)
        except (QueueNotFound, ConfigInvalid, StoreFailed) as error:
            self._parts.on_error(error, where=f"configuration of queue {queue}")
            return None

    def _as_defined(self, candidate: Candidate, settings: QueueSettings) -> QueueSettings:
        """The settings with the options that the candidate's handler was defined with, where this host knows it.

        Options that contradict what is declared are left out, as the queue's owner would expect, and reported.
        """
        handler = self._parts.handlers.find(candidate.handler_ref)
        if handler is None or not handler.definition:
            return settings
        try:
            return self._parts.queues.settings(candidate.queue, definition=handler.definition)
        except (ConfigInvalid, CorruptItem, QueueNotFound, StoreFailed) as error:
            self._parts.on_error(error, where=f"options of the typed task {handler.ref}")
            return settings

    # -- one candidate, on a thread of its own ------------------------------------------------------------------

    def _start(self, candidate: Candidate, settings: QueueSettings) -> None:
        self._count(under_way=1, started=1)
        thread = threading.Thread(
            target=self._work, args=(candidate, settings), name=f"rdq-run-{candidate.task_id}", daemon=True
        )
        thread.start()

    def _work(self, candidate: Candidate, settings: QueueSettings) -> None:
        try:
            self._take_and_run(candidate, settings)
        except Exception as bug:  # noqa: BLE001 - a thread must not die in silence
            self._parts.on_error(bug, where=f"working on task {candidate.task_id}")
        finally:
            self._last_event = self._clock.now()
            self._count(under_way=-1)
            self._changed.set()

    def _take_and_run(self, candidate: Candidate, settings: QueueSettings) -> None:
        claim, lane = None, self._lanes[candidate.queue]
        settings = self._as_defined(candidate, settings)
        try:
            claim = self._take(candidate, settings, lane)
        finally:
            if claim is None:
                self._count(started=-1)
                self._handler_gone(candidate.queue)
        if claim is not None:
            self._tally.add(candidate.queue, "claimed")
            gone = functools.partial(self._handler_gone, candidate.queue)
            resolution = self._parts.runner.run(claim, settings, self._stop, handler_gone=gone)
            self._tally.add(candidate.queue, resolution)
            lane.ended(candidate)

    def _take(self, candidate: Candidate, settings: QueueSettings, lane: Lane) -> Claim | None:
        """The claim to run; None when there is none, which has been counted."""
        taken: Claim | Resolution | KeyBusy | None = KEY_BUSY  # what can't be read or reached waits just as long
        try:
            taken = self._parts.claimer.take(candidate, settings)
        except (CorruptItem, StoreFailed) as error:
            self._parts.on_error(error, where=f"claiming task {candidate.task_id}")
        if isinstance(taken, Claim):
            return taken
        if isinstance(taken, KeyBusy):
            self._tally.add(candidate.queue, "deferred")
            lane.started_nothing(candidate, busy_until=self._clock.now() + self._poll(settings))
        else:
            self._tally.add(candidate.queue, "contended" if taken is None else taken)
            lane.started_nothing(candidate)
        return None

    def _count(self, *, under_way: int = 0, started: int = 0) -> None:
        with self._lock:
            self._under_way += under_way
            self._started += started

    def _handler_gone(self, queue: str) -> None:
        self._slots.give_back(queue)
        self._changed.set()
