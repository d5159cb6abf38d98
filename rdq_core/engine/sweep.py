"""One sweep: looks at many queues in turn, decides what starts, and reports what was done.

    Scheduler (one a sweep)
      decides    next_cycle ── every second: reconcilers, removals, renewals, background work
      per queue  upcoming ──── the next due time seen; out_of_time ── no handler fits any more
      to end     idle_since ── nothing to do since; last_event ── the last end of a run
      │
      ├─ Admission (one a queue)   what may start now: due, with a token, its key free
      ├─ RunnerPool                what is under way, and the threads it runs on
      └─ Presence                  announces to other hosts that this sweep is at work

Any number of sweeps may overlap, on one machine or many. No lock decides which of them takes a
task: the conditional write of the claim does.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from rdq_core.config.settings import Host, QueueSettings
from rdq_core.domain.limits import LONG_OVERDUE
from rdq_core.domain.times import earliest
from rdq_core.engine.admission import Admission
from rdq_core.engine.backlog import RemainingWork
from rdq_core.engine.claims import Claimer
from rdq_core.engine.due_reader import DueReader
from rdq_core.engine.effective_settings import EffectiveSettings, is_served
from rdq_core.engine.pool import NotRun, RunnerPool, Slots
from rdq_core.engine.ports import (
    BackgroundWork,
    Candidate,
    Clock,
    ErrorSink,
    Jitter,
    RateLimiter,
    Reservations,
    Sleeper,
    TaskStore,
)
from rdq_core.engine.presence import Presence
from rdq_core.engine.reconcile import Reconcilers
from rdq_core.engine.removal import Removals
from rdq_core.engine.renewals import Renewals
from rdq_core.engine.report import QueueReport, Resolution, SweepReport
from rdq_core.engine.routing import Router
from rdq_core.engine.run import Runner
from rdq_core.engine.stopping import Stop
from rdq_core.errors import StoreFailed

_FAR_AHEAD: Final = timedelta(days=1)
_CYCLE: Final = timedelta(seconds=1)
"""How often every queue is looked at even if nothing woke the sweep."""
_BACKGROUND_SLICE: Final = timedelta(milliseconds=250)
_BACKGROUND: Final = "rdq.background"
"""The key of background work among the queues' due times; no queue can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLimits:
    """When a sweep ends.

    After `deadline` nothing is claimed. `ends_at` is the end of the host's own time: from
    `deadline` on handlers are asked to stop, and at `ends_at` their tasks are released; None leaves
    them their own time. With nothing under way and nothing due within `horizon` of the last end of
    a run, the sweep looks for `linger` more and returns; None never returns by itself. `max_tasks`
    bounds the claims. With `only_what_fits` a queue is skipped once a handler of it could run past
    `ends_at`. `shards` are the only ones to look at, None all.
    """

    deadline: datetime | None = None
    ends_at: datetime | None = None
    horizon: timedelta | None = timedelta(seconds=75)
    linger: timedelta = timedelta(seconds=2)
    max_tasks: int | None = None
    only_what_fits: bool = False
    shards: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepParts:
    """What a sweep works with. `serves` are the queues, `host` is the kind of this host.

    `reservations` is where it announces its presence; None for hosts that nothing else starts.
    `background_work` gets a slice of the sweep's time in each cycle.
    """

    store: TaskStore
    effective_settings: EffectiveSettings
    router: Router
    claimer: Claimer
    runner: Runner
    limiter: RateLimiter
    reconcilers: Reconcilers
    removals: Removals
    renewals: Renewals
    serves: Sequence[str]
    host: Host
    clock: Clock
    jitter: Jitter
    idle: Sleeper
    busy: Sleeper
    on_error: ErrorSink
    reservations: Reservations | None = None
    background_work: BackgroundWork | None = None


class Sweeper:
    """Sweeps the queues that this host serves. One object a process: its slots outlive the single
    sweep.
    """

    def __init__(self, parts: SweepParts) -> None:
        self._parts = parts
        self.slots = Slots()

    def sweep(self, limits: SweepLimits, stop: Stop | None = None) -> SweepReport:
        """Sweep until `limits` end it or `stop` is requested. Never raises for a task's failure."""
        return Scheduler(self._parts, self.slots, limits, stop or Stop()).run()


class Scheduler:
    """Decides what one sweep starts and when it ends. Everything but `may_claim`, `on_unreached`
    and `on_end`, which the pool's threads call, runs on the thread of `run`.
    """

    def __init__(self, parts: SweepParts, slots: Slots, limits: SweepLimits, stop: Stop) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._slots = slots
        self._limits = limits
        self._stop = stop
        self._tally = _Tally()
        self._last_event = self._next_cycle = parts.clock.now()
        self._idle_since: datetime | None = None
        self._upcoming: dict[str, datetime | None] = {}
        self._unreachable: set[str] = set()
        self._out_of_time: set[str] = set()
        # A sweep of some shards announces nothing: work in the other shards would wait for it.
        self._presence = (
            Presence(parts.reservations, clock=parts.clock, on_error=parts.on_error)
            if parts.reservations is not None and limits.shards is None
            else None
        )
        self._admissions = {queue: self._admission(queue) for queue in parts.serves}
        self._pool = RunnerPool(
            parts.claimer,
            parts.runner,
            parts.effective_settings,
            slots=slots,
            stop=stop,
            listener=self,
            on_error=parts.on_error,
        )

    def _admission(self, queue: str) -> Admission:
        parts = self._parts
        due_reader = DueReader(
            queue,
            parts.store,
            clock=parts.clock,
            jitter=parts.jitter,
            on_error=parts.on_error,
            share=self._limits.shards,
        )
        return Admission(
            queue,
            due_reader,
            parts.limiter,
            clock=parts.clock,
            on_deferred=lambda: self._tally.add(queue, NotRun.BUSY),
        )

    def run(self) -> SweepReport:
        """Sweep to the end."""
        pool = self._pool
        with self._stop.waking(pool.changed):
            while not self._is_over():
                # Cleared before the look, so that what ends during it shortens the next wait.
                pool.changed.clear()
                changes = pool.changes
                next_look = self._look()
                # A run that began or ended during this look may have left work that it didn't see.
                if pool.changes == changes and self._is_done(next_look):
                    break
                self._wait(next_look)
            ran_out = self._limits.ends_at is not None and self._has_run_out_of_time()
            if self._presence is not None:
                self._presence.end()
            # Read before the wait: until then a kick may have counted on this sweep.
            withdrawn_at = self._clock.now()
            self._wait_for_runs()
        report = self._tally.report()
        return self._with_remaining_work(report, withdrawn_at) if ran_out else report

    def _look(self) -> datetime | None:
        """Give every queue its turn, and once a cycle do what is not about tasks. When to look
        again; None when only the end of a run can bring more work.
        """
        now, begins_cycle = self._clock.now(), False
        if now >= self._next_cycle:
            begins_cycle, self._next_cycle = True, now + _CYCLE
            if self._parts.reconcilers.all:
                self._parts.reconcilers.run(self._stop, until=self._limits.deadline)
            self._parts.removals.run()
        wakes = [self._turn(queue, admission) for queue, admission in self._admissions.items()]
        if begins_cycle:
            if self._parts.renewals.pages:
                self._parts.renewals.step()
            if self._parts.background_work is not None and not self._is_out_of_time():
                until = self._clock.now() + _BACKGROUND_SLICE
                until = earliest((until, self._limits.deadline)) or until
                # Its next due time counts as a queue's does.
                self._upcoming[_BACKGROUND] = self._parts.background_work.step(until=until)
        if (due_at := self._upcoming.get(_BACKGROUND)) is not None:
            wakes.append(max(due_at, self._next_cycle))
        return earliest(wakes)

    # -- one queue ---------------------------------------------------------------------------------

    def _turn(self, queue: str, admission: Admission) -> datetime | None:
        """One queue's turn. An error in it is reported and skips this queue for a second; the
        others go on.
        """
        try:
            wakes_at = self._serve(queue, admission)
        # The limiter failed, no thread could be started, or it is a bug.
        except Exception as error:  # noqa: BLE001
            kind = "rate limit of" if isinstance(error, StoreFailed) else "looking for work in"
            self._parts.on_error(error, where=f"{kind} queue {queue}")
            return self._clock.now() + _CYCLE
        if self._presence is not None:
            self._presence.keep(queue, is_at_work=self._slots.taken(queue) > 0)
        return wakes_at

    def _serve(self, queue: str, admission: Admission) -> datetime | None:
        """Start what is due, as far as slots are free. When to come back; None when a slot gets
        free.
        """
        settings = self._parts.effective_settings.of(queue)
        if settings is None or not is_served(settings, self._parts.host):
            if settings is not None:
                self._parts.renewals.look_after(queue, settings.shards_ever)
            return self._skip(queue)
        if not self._fits(settings):
            self._out_of_time.add(queue)
            return self._skip(queue)
        limit = settings.dispatch.concurrency
        # At most `limit` starts in one turn, or fast handlers would keep the other queues waiting.
        for _ in range(limit):
            if self._is_over() or not (free := self._slots.acquire(queue, limit)):
                return None
            if not self._fill_slot(admission, settings, free):
                now = self._clock.now()
                self._upcoming[queue] = admission.upcoming(now)
                return admission.wakes_at(now)
        return self._clock.now()

    def _skip(self, queue: str) -> datetime:
        self._upcoming[queue] = None
        return self._clock.now() + _CYCLE

    def _fill_slot(self, admission: Admission, settings: QueueSettings, free: int) -> bool:
        """Start the next candidate in the slot that was acquired, one of `free`; or release it."""
        started = False
        try:
            candidate = self._next(admission, settings, free)
            if candidate is None:
                return False
            if candidate.due_at + LONG_OVERDUE <= self._clock.now():
                # What is behind a task that is long overdue is long overdue as well.
                self._parts.renewals.look_after(candidate.queue, settings.shards_ever)
            self._note_work(candidate.queue)
            try:
                self._pool.start(candidate, settings)
            except BaseException:
                self._defer(candidate, settings)
                raise
            started = True
        finally:
            if not started:
                self._slots.release(settings.queue)
        return started

    def _next(self, admission: Admission, settings: QueueSettings, free: int) -> Candidate | None:
        """The next candidate whose function, if it has one, has not been unreachable in this
        sweep.
        """
        while True:
            candidate = admission.next(
                settings, until=self._horizon, poll=self._poll(settings), slots=free
            )
            if (
                candidate is None
                or not self._unreachable
                or self._function_of(candidate, settings) not in self._unreachable
            ):
                return candidate
            self._tally.add(candidate.queue, NotRun.BUSY)
            admission.put_back(candidate)

    def _function_of(self, candidate: Candidate, settings: QueueSettings) -> str | None:
        target = self._parts.router.target(candidate.handler_ref, settings)
        return None if target is None else target.function

    # -- called by the pool's threads --------------------------------------------------------------

    def may_claim(self, settings: QueueSettings) -> bool:
        """See `Listener.may_claim`."""
        return not self._is_out_of_time() and self._fits(settings)

    def on_unreached(self, candidate: Candidate, settings: QueueSettings) -> None:
        """Skip the other tasks of this function for the rest of the sweep."""
        self._unreachable.add(self._function_of(candidate, settings) or "")

    def on_end(
        self,
        candidate: Candidate,
        settings: QueueSettings,
        result: Resolution | NotRun,
        *,
        claimed: bool,
    ) -> None:
        """Count the result, and let the next candidate of its key or token start."""
        if result is NotRun.BUSY:
            self._defer(candidate, settings)
            return
        if result is not NotRun.NO_TIME:
            self._tally.add(candidate.queue, result)
        if isinstance(result, Resolution):
            self._last_event = self._clock.now()
        if claimed:
            self._tally.add(candidate.queue, "claimed")
            self._note_work(candidate.queue)
            self._admissions[candidate.queue].ended(candidate)
        else:
            self._admissions[candidate.queue].put_back(candidate)

    def _defer(self, candidate: Candidate, settings: QueueSettings) -> None:
        self._tally.add(candidate.queue, NotRun.BUSY)
        busy_until = self._clock.now() + self._poll(settings)
        self._admissions[candidate.queue].put_back(candidate, busy_until=busy_until)

    def _note_work(self, queue: str) -> None:
        if self._presence is not None:
            self._presence.note_work(queue)

    # -- time --------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether nothing more may be claimed."""
        most = self._limits.max_tasks
        return (most is not None and self._pool.started >= most) or self._is_out_of_time()

    def _is_out_of_time(self) -> bool:
        deadline = self._limits.deadline
        return self._stop.requested or (deadline is not None and self._clock.now() >= deadline)

    def _has_run_out_of_time(self) -> bool:
        """Whether the end of the host's time, and not a stop, kept the sweep from work."""
        is_late = self._is_out_of_time() or bool(self._out_of_time)
        return is_late and not self._stop.requested

    def _fits(self, settings: QueueSettings) -> bool:
        """Whether a handler that starts now is done when the host ends, at the latest."""
        ends_at = self._limits.ends_at if self._limits.only_what_fits else None
        return ends_at is None or self._clock.now() + settings.execution.handler_timeout <= ends_at

    def _is_done(self, next_look: datetime | None) -> bool:
        """Whether looks over at least `linger` have found nothing to do or to wait for."""
        if self._limits.horizon is None:
            return False
        now, upcoming = self._clock.now(), earliest(self._upcoming.values())
        if (
            (next_look is not None and next_look <= now)
            or self._pool.is_at_work
            or (self._presence is not None and self._presence.is_announced)
            or (upcoming is not None and upcoming <= self._horizon)
        ):
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or now
        return now - self._idle_since >= self._limits.linger

    @property
    def _horizon(self) -> datetime:
        """Up to when due times are of interest."""
        now = self._clock.now()
        if self._limits.horizon is None:
            return now + _FAR_AHEAD
        # At least now: while a slow handler is under way the last event may be older than the
        # horizon, and what is due must be seen all the same.
        return max(now, self._last_event + self._limits.horizon)

    def _poll(self, settings: QueueSettings) -> timedelta:
        """How often to read a queue. A sweep that ends by itself reads at least once a cycle, so as
        not to miss what comes in meanwhile.
        """
        interval = settings.dispatch.poll_interval
        return interval if self._limits.horizon is None else min(interval, _CYCLE)

    def _wait(self, until: datetime | None) -> None:
        """Wait until then, the end of a run, or a stop; a cycle at most."""
        now = self._clock.now()
        latest = now + _CYCLE
        span = (earliest((latest, until, self._limits.deadline)) or latest) - now
        sleeper = self._parts.busy if self._pool.is_at_work else self._parts.idle
        if span > timedelta(0):
            sleeper.wait(self._pool.changed, span / timedelta(seconds=1))

    def _wait_for_runs(self) -> None:
        while True:
            self._pool.changed.clear()
            # Handlers are asked to stop only now: until the deadline they may still finish.
            if self._limits.ends_at is not None and self._is_out_of_time():
                self._stop.request(deadline=self._limits.ends_at)
            if not self._pool.is_at_work:
                return
            self._parts.busy.wait(self._pool.changed, _CYCLE / timedelta(seconds=1))

    # -- the report --------------------------------------------------------------------------------

    def _with_remaining_work(self, report: SweepReport, withdrawn_at: datetime) -> SweepReport:
        """The report, with the queues whose work the host had no time for."""
        parts, limits, horizon = self._parts, self._limits, self._horizon
        remaining = RemainingWork(
            store=parts.store,
            effective_settings=parts.effective_settings,
            queues=tuple(self._admissions),
            host=parts.host,
            shards=limits.shards,
            clock=self._clock,
            sleeper=parts.idle,
            on_error=parts.on_error,
        )
        left = remaining.find(
            due_by=horizon, until=withdrawn_at + limits.linger, ends_at=limits.ends_at
        )
        due_at = self._upcoming.get(_BACKGROUND)
        return replace(
            report,
            left=left,
            left_background_work=due_at is not None and due_at <= self._horizon,
        )


class _Tally:
    """Counts during a sweep, from all of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}

    def add(self, queue: str, name: str) -> None:
        """Count one more task of a queue under a field's name of `QueueReport`."""
        with self._lock:
            self._counts.setdefault(queue, Counter())[name] += 1

    def report(self) -> SweepReport:
        """The counts so far."""
        with self._lock:
            return SweepReport(
                {queue: QueueReport(**counts) for queue, counts in self._counts.items()}
            )
