"""One sweep: due work of many queues, claimed as slots get free, run side by side, and reported on.

Any number of sweeps may overlap, on one machine or many. No lock decides who may: claims do. A lease is never held on
work that isn't starting at once, since a claim is made by the very thread that then runs it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.lease import Claim
from rdq_core.engine.claims import Claimer
from rdq_core.engine.feed import Feed
from rdq_core.engine.ports import Candidate, Clock, ErrorSink, Jitter, QueueSource, Sleeper, TaskStore
from rdq_core.engine.report import SweepReport, Tally
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

    def give_back(self, queue: str) -> None:
        """One less."""
        with self._lock:
            self._taken[queue] -= 1


class Sweeper:
    """Sweeps the queues that this host serves. One object a process; its slots outlive the single sweep."""

    def __init__(
        self,
        store: TaskStore,
        queues: QueueSource,
        claimer: Claimer,
        runner: Runner,
        *,
        serves: Sequence[str],
        clock: Clock,
        jitter: Jitter,
        idle: Sleeper,
        busy: Sleeper,
        on_error: ErrorSink,
    ) -> None:
        self.store = store
        self.queues = queues
        self.claimer = claimer
        self.runner = runner
        self.serves = tuple(serves)
        self.clock = clock
        self.jitter = jitter
        self.idle = idle
        self.busy = busy
        self.on_error = on_error
        self.slots = Slots()

    def sweep(self, limits: SweepLimits, stop: Stop | None = None) -> SweepReport:
        """Sweep until the limits say so or `stop` is requested. Never raises for a task's failure."""
        return _Sweep(self, limits, stop or Stop()).run()


class _Sweep:
    """The state of one sweep."""

    def __init__(self, sweeper: Sweeper, limits: SweepLimits, stop: Stop) -> None:
        self._sweeper = sweeper
        self._limits = limits
        self._stop = stop
        self._tally = Tally()
        self._changed = threading.Event()
        self._under_way = 0
        self._started = 0
        self._lock = threading.Lock()
        self._last_event = sweeper.clock.now()
        self._idle_since: datetime | None = None
        self._upcoming: dict[str, datetime] = {}
        self._feeds = {
            queue: Feed(queue, sweeper.store, clock=sweeper.clock, jitter=sweeper.jitter, on_error=sweeper.on_error)
            for queue in sweeper.serves
        }

    def run(self) -> SweepReport:
        with self._stop.waking(self._changed):
            while not self._is_over():
                self._changed.clear()
                wakes = [self._serve(queue, feed) for queue, feed in self._feeds.items()]
                if self._is_done():
                    break
                self._wait(min((moment for moment in wakes if moment is not None), default=None))
            self._wait_for_runs()
        return self._tally.report()

    # -- when to go on ------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether nothing more may be claimed."""
        deadline = self._limits.deadline
        spent = self._limits.max_tasks is not None and self._started >= self._limits.max_tasks
        return self._stop.requested or spent or (deadline is not None and self._sweeper.clock.now() >= deadline)

    def _is_done(self) -> bool:
        """Whether looks over at least `linger` have found nothing to do or to wait for."""
        if self._limits.horizon is None:
            return False
        now = self._sweeper.clock.now()
        if self._under_way or any(moment <= self._horizon for moment in self._upcoming.values()):
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or now
        return now - self._idle_since >= self._limits.linger

    @property
    def _horizon(self) -> datetime:
        return self._last_event + (_FAR_AHEAD if self._limits.horizon is None else self._limits.horizon)

    def _wait(self, until: datetime | None) -> None:
        """Until then, or a run ends, or the stop is requested. None leaves it to the end of a run."""
        now = self._sweeper.clock.now()
        moments = (now + _LONGEST_WAIT, until, self._limits.deadline)
        seconds = (min(moment for moment in moments if moment is not None) - now) / timedelta(seconds=1)
        sleeper = self._sweeper.busy if self._under_way else self._sweeper.idle
        sleeper.wait(self._changed, max(seconds, 0.001))

    def _wait_for_runs(self) -> None:
        while True:
            self._changed.clear()
            if not self._under_way:
                return
            self._sweeper.busy.wait(self._changed, _LONGEST_WAIT / timedelta(seconds=1))

    # -- one queue ----------------------------------------------------------------------------------------------

    def _serve(self, queue: str, feed: Feed) -> datetime | None:
        """Start what is due, as far as slots are free. When to come back: None is when a slot gets free."""
        settings = self._settings(queue)
        if settings is None or settings.paused:
            self._upcoming.pop(queue, None)
            return self._sweeper.clock.now() + _LONGEST_WAIT
        while not self._is_over() and self._sweeper.slots.take(queue, settings.dispatch.concurrency):
            candidate = feed.next(settings, until=self._horizon, poll=self._poll(settings))
            if candidate is None:
                self._sweeper.slots.give_back(queue)
                self._note_upcoming(queue, feed.upcoming)
                return feed.wakes_at(self._sweeper.clock.now())
            self._start(candidate, settings)
        return None

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
            return self._sweeper.queues.settings(queue)
        except (QueueNotFound, ConfigInvalid, StoreFailed) as error:
            self._sweeper.on_error(error, where=f"configuration of queue {queue}")
            return None

    def _start(self, candidate: Candidate, settings: QueueSettings) -> None:
        with self._lock:
            self._under_way += 1
            self._started += 1
        thread = threading.Thread(
            target=self._work, args=(candidate, settings), name=f"rdq-run-{candidate.task_id}", daemon=True
        )
        thread.start()

    # -- one candidate, on a thread of its own ------------------------------------------------------------------

    def _work(self, candidate: Candidate, settings: QueueSettings) -> None:
        try:
            self._take_and_run(candidate, settings, lambda: self._handler_gone(candidate.queue))
        except Exception as bug:  # noqa: BLE001 - a thread must not die in silence
            self._sweeper.on_error(bug, where=f"working on task {candidate.task_id}")
        finally:
            with self._lock:
                self._under_way -= 1
                self._last_event = self._sweeper.clock.now()
            self._changed.set()

    def _take_and_run(self, candidate: Candidate, settings: QueueSettings, handler_gone: Callable[[], None]) -> None:
        claim = None
        try:
            claim = self._take(candidate, settings)
        finally:
            if claim is None:
                handler_gone()
        if claim is not None:
            self._tally.add(candidate.queue, "claimed")
            resolution = self._sweeper.runner.run(claim, settings, self._stop, handler_gone=handler_gone)
            self._tally.add(candidate.queue, resolution)

    def _take(self, candidate: Candidate, settings: QueueSettings) -> Claim | None:
        """The claim to run; None when there is none, which has been counted."""
        try:
            taken = self._sweeper.claimer.take(candidate, settings)
        except (CorruptItem, StoreFailed) as error:
            self._sweeper.on_error(error, where=f"claiming task {candidate.task_id}")
            self._tally.add(candidate.queue, "deferred")
            self._not_started()
            return None
        if isinstance(taken, Claim):
            return taken
        self._not_started()
        self._tally.add(candidate.queue, "contended" if taken is None else taken)
        return None

    def _not_started(self) -> None:
        with self._lock:
            self._started -= 1

    def _handler_gone(self, queue: str) -> None:
        self._sweeper.slots.give_back(queue)
        self._changed.set()
