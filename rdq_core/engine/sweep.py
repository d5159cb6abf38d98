"""One sweep: due work of many queues, claimed as slots get free, run side by side, and reported on.

Any number of sweeps may overlap, on one machine or many. No lock decides who may: claims do. A
lease is never held on work that isn't starting at once, since a claim is made by the very thread
that then runs it.
"""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from rdq_core.config.settings import Host, QueueSettings
from rdq_core.domain.lease import Claim
from rdq_core.engine.admission import Admission
from rdq_core.engine.claims import Claimer
from rdq_core.engine.due_reader import DueReader
from rdq_core.engine.effective_settings import EffectiveSettings
from rdq_core.engine.ports import (
    KEY_BUSY,
    BackgroundWork,
    Candidate,
    Clock,
    ErrorSink,
    Jitter,
    KeyBusy,
    RateLimiter,
    Reservations,
    Sleeper,
    TaskStore,
)
from rdq_core.engine.presence import Presence
from rdq_core.engine.reconcile import Reconcilers
from rdq_core.engine.remaining_work import RemainingWork, is_served
from rdq_core.engine.removal import Removals
from rdq_core.engine.renewals import Renewals
from rdq_core.engine.report import SweepReport, Tally
from rdq_core.engine.routing import Router
from rdq_core.engine.run import Runner
from rdq_core.engine.slots import Slots
from rdq_core.engine.stopping import Stop
from rdq_core.errors import StoreFailed

_FAR_AHEAD: Final = timedelta(days=1)
_LONGEST_WAIT: Final = timedelta(seconds=1)
_SLICE: Final = timedelta(milliseconds=250)
_BACKGROUND: Final = "rdq.background"
"""Where their due time is kept, under a name that no queue can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLimits:
    """When a sweep ends.

    After `deadline` nothing is claimed. `ends_at` is the end of the host's own time: from
    `deadline` on handlers are asked to stop, and then their tasks are released; None leaves them
    the time that they have. With nothing under way and nothing due within `horizon` of the last
    thing that happened, the sweep looks for `linger` more and returns; None never returns by
    itself. `max_tasks` bounds the claims. With `only_what_fits` a queue is left alone once a
    handler of it could take longer than up to `ends_at`. `shards` are the only ones to look at,
    None all.
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
    """What a sweep works with. `serves` are the queues, `host` is the kind of host that this is.

    `reservations` is where it says that it is awake; None for hosts that nobody needs to start.
    `background_work` is what it does besides, for a slice of its time.
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
    """Sweeps the queues that this host serves. One object a process; its slots outlive the single
    sweep.
    """

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
        self._changes = 0
        self._lock = threading.Lock()
        self._last_event = parts.clock.now()
        self._idle_since: datetime | None = None
        self._next_cycle = self._last_event
        self._upcoming: dict[str, datetime] = {}
        self._unreachable: set[str] = set()
        self._out_of_time: set[str] = set()
        awake = parts.reservations if limits.shards is None else None
        self._presence = Presence(awake, clock=parts.clock, on_error=parts.on_error)
        self._admissions = {queue: self._admission(queue) for queue in parts.serves}

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
            on_deferred=lambda: self._tally.add(queue, "deferred"),
        )

    def run(self) -> SweepReport:
        with self._stop.waking(self._changed):
            while not self._is_over():
                self._changed.clear()
                changes = self._changes
                begins_cycle = self._begins_cycle()
                if begins_cycle:
                    self._parts.reconcilers.run(self._stop, until=self._limits.deadline)
                    self._parts.removals.run()
                wakes = [
                    self._turn(queue, admission) for queue, admission in self._admissions.items()
                ]
                if begins_cycle:
                    self._parts.renewals.step()
                    self._do_background_work()
                wakes.append(self._background_work_at())
                next_look = min((moment for moment in wakes if moment is not None), default=None)
                # A run that began or ended since may have left work that this look didn't see.
                if self._changes == changes and self._is_done(next_look):
                    break
                self._wait(next_look)
            ran_out = self._has_run_out_of_time()
            self._presence.end()
            asleep_since = self._clock.now()
            self._wait_for_runs()
        return self._report(asleep_since) if ran_out else self._tally.report()

    def _has_run_out_of_time(self) -> bool:
        """Whether the end of the host's time kept it from work, and not somebody's wish."""
        if self._limits.ends_at is None or self._stop.requested:
            return False
        return self._is_out_of_time() or bool(self._out_of_time)

    def _report(self, asleep_since: datetime) -> SweepReport:
        """What it did; and what it leaves, where it ended for want of time."""
        parts, limits = self._parts, self._limits
        look = RemainingWork(
            store=parts.store,
            effective_settings=parts.effective_settings,
            queues=tuple(self._admissions),
            host=parts.host,
            shards=limits.shards,
            clock=self._clock,
            sleeper=parts.idle,
            on_error=parts.on_error,
        )
        left = look.left(
            due_by=self._horizon, until=asleep_since + limits.linger, ends_at=limits.ends_at
        )
        background_work_at = self._upcoming.get(_BACKGROUND)
        return replace(
            self._tally.report(),
            left=left,
            left_background_work=background_work_at is not None
            and background_work_at <= self._horizon,
        )

    def _begins_cycle(self) -> bool:
        """Whether a cycle of claims begins, as the first one does; a run that ends begins no new
        one.
        """
        now = self._clock.now()
        if now < self._next_cycle:
            return False
        self._next_cycle = now + _LONGEST_WAIT
        return True

    def _do_background_work(self) -> None:
        """A slice of what this host does besides. When there is more of it counts as a due time."""
        if self._parts.background_work is None or self._is_out_of_time():
            return
        until = self._clock.now() + _SLICE
        if self._limits.deadline is not None:
            until = min(until, self._limits.deadline)
        self._note_upcoming(_BACKGROUND, self._parts.background_work.step(until=until))

    def _background_work_at(self) -> datetime | None:
        """When there is the next slice of them: with a cycle, and not before they are due."""
        due_at = self._upcoming.get(_BACKGROUND)
        return None if due_at is None else max(due_at, self._next_cycle)

    # -- when to go on -----------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether nothing more may be claimed."""
        spent = self._limits.max_tasks is not None and self._started >= self._limits.max_tasks
        return spent or self._is_out_of_time()

    def _is_out_of_time(self) -> bool:
        deadline = self._limits.deadline
        return self._stop.requested or (deadline is not None and self._clock.now() >= deadline)

    def _is_at_work(self) -> bool:
        with self._lock:
            return self._under_way > 0

    def _is_done(self, next_look: datetime | None) -> bool:
        """Whether looks over at least `linger` have found nothing to do or to wait for."""
        if self._limits.horizon is None:
            return False
        now = self._clock.now()
        has_more = next_look is not None and next_look <= now
        horizon = self._horizon
        if (
            has_more
            or self._is_at_work()
            or self._presence.is_awake
            or any(moment <= horizon for moment in self._upcoming.values())
        ):
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or now
        return now - self._idle_since >= self._limits.linger

    @property
    def _horizon(self) -> datetime:
        """Up to when due times are of interest."""
        if self._limits.horizon is None:
            return self._clock.now() + _FAR_AHEAD
        # What is due has to be seen however long ago the last thing happened: a slow handler may
        # still be under way.
        return max(self._clock.now(), self._last_event + self._limits.horizon)

    def _wait(self, until: datetime | None) -> None:
        """Until then, or a run ends, or the stop is requested. None leaves it to the end of a run."""
        now = self._clock.now()
        moments = (now + _LONGEST_WAIT, until, self._limits.deadline)
        seconds = (min(moment for moment in moments if moment is not None) - now) / timedelta(
            seconds=1
        )
        sleeper = self._parts.busy if self._is_at_work() else self._parts.idle
        if seconds > 0:
            sleeper.wait(self._changed, seconds)

    def _wait_for_runs(self) -> None:
        while True:
            self._changed.clear()
            if self._limits.ends_at is not None and self._is_out_of_time():
                self._stop.request(deadline=self._limits.ends_at)
            if not self._is_at_work():
                return
            self._parts.busy.wait(self._changed, _LONGEST_WAIT / timedelta(seconds=1))

    # -- one queue ---------------------------------------------------------------------------------

    def _turn(self, queue: str, admission: Admission) -> datetime | None:
        """One queue's turn. What goes wrong in it is told, and the queue left alone for a while;
        the others go on.
        """
        try:
            wakes_at = self._serve(queue, admission)
        # the limiter fails, or no thread can be started, or it is a bug
        except Exception as error:  # noqa: BLE001
            kind = "rate limit of" if isinstance(error, StoreFailed) else "looking for work in"
            self._parts.on_error(error, where=f"{kind} queue {queue}")
            return self._clock.now() + _LONGEST_WAIT
        self._presence.keep(queue, is_at_work=self._slots.taken(queue) > 0)
        return wakes_at

    def _serve(self, queue: str, admission: Admission) -> datetime | None:
        """Start what is due, as far as slots are free. When to come back: None is when a slot gets
        free.
        """
        settings = self._parts.effective_settings.of(queue)
        if settings is None or not is_served(settings, self._parts.host):
            if settings is not None:
                self._parts.renewals.look_after(queue, settings.shards_ever)
            self._upcoming.pop(queue, None)
            return self._clock.now() + _LONGEST_WAIT
        if self._is_too_late_for(settings):
            self._out_of_time.add(queue)
            self._upcoming.pop(queue, None)
            return self._clock.now() + _LONGEST_WAIT
        most = settings.dispatch.concurrency
        for _ in range(
            most
        ):  # no more in one turn, or handlers that are fast would keep the other queues waiting
            if self._is_over() or not self._slots.take(queue, most):
                return None
            if not self._fill_slot(admission, settings, free=most - self._slots.taken(queue) + 1):
                self._note_upcoming(queue, admission.upcoming(self._clock.now()))
                return admission.wakes_at(self._clock.now())
        return self._clock.now()

    def _is_too_late_for(self, settings: QueueSettings) -> bool:
        """Whether a handler that starts now may not be done when the host ends."""
        ends_at = self._limits.ends_at if self._limits.only_what_fits else None
        return (
            ends_at is not None and self._clock.now() + settings.execution.handler_timeout > ends_at
        )

    def _fill_slot(self, admission: Admission, settings: QueueSettings, *, free: int) -> bool:
        """Start the next candidate in the slot that was taken, or give the slot back."""
        started = False
        try:
            candidate = self._next(admission, settings, free)
            if candidate is not None:
                self._parts.renewals.notice(candidate, settings.shards_ever)
                self._start(candidate, settings)
                started = True
        finally:
            if not started:
                self._slots.give_back(settings.queue)
        return started

    def _next(self, admission: Admission, settings: QueueSettings, free: int) -> Candidate | None:
        """The next candidate but for those whose function couldn't be reached: they are a later
        sweep's.
        """
        while True:
            candidate = admission.next(
                settings, until=self._horizon, poll=self._poll(settings), slots=free
            )
            if candidate is None or self._function_of(candidate, settings) not in self._unreachable:
                return candidate
            self._tally.add(candidate.queue, "deferred")
            admission.started_nothing(candidate)

    def _function_of(self, candidate: Candidate, settings: QueueSettings) -> str | None:
        target = self._parts.router.target(candidate.handler_ref, settings)
        return None if target is None else target.function

    def _poll(self, settings: QueueSettings) -> timedelta:
        """How often to look. A sweep that will end by itself must not miss what comes in while it
        goes on.
        """
        interval = settings.dispatch.poll_interval
        return interval if self._limits.horizon is None else min(interval, _LONGEST_WAIT)

    def _note_upcoming(self, queue: str, moment: datetime | None) -> None:
        if moment is None:
            self._upcoming.pop(queue, None)
        else:
            self._upcoming[queue] = moment

    # -- one candidate, on a thread of its own -----------------------------------------------------

    def _start(self, candidate: Candidate, settings: QueueSettings) -> None:
        thread = threading.Thread(
            target=self._work,
            args=(candidate, settings),
            name=f"rdq-run-{candidate.task_id}",
            daemon=True,
        )
        self._presence.note_work(candidate.queue)
        self._count(under_way=1, started=1, wake=False)
        try:
            thread.start()
        except BaseException:  # the system has no more threads to give
            self._count(
                under_way=-1, started=-1, wake=False
            )  # or it would be tried again at once, for ever
            self._defer(candidate, settings)
            raise

    def _work(self, candidate: Candidate, settings: QueueSettings) -> None:
        claim = None
        try:
            settings = self._parts.effective_settings.as_defined(candidate, settings)
            claim = self._take(candidate, settings)
            if claim is not None:
                self._run(claim, candidate, settings)
        except Exception as bug:  # noqa: BLE001 - a thread must not die in silence
            self._parts.on_error(bug, where=f"working on task {candidate.task_id}")
        finally:
            if claim is None:
                self._slots.give_back(candidate.queue)
            self._count(under_way=-1, started=-1 if claim is None else 0)

    def _run(self, claim: Claim, candidate: Candidate, settings: QueueSettings) -> None:
        self._tally.add(candidate.queue, "claimed")
        gone = functools.partial(self._handler_gone, candidate.queue)
        unreached = functools.partial(
            self._unreachable.add, self._function_of(candidate, settings) or ""
        )
        try:
            resolution = self._parts.runner.run(
                claim, settings, self._stop, handler_gone=gone, on_unreached=unreached
            )
            self._tally.add(candidate.queue, resolution)
        finally:
            self._last_event = self._clock.now()
            self._presence.note_work(candidate.queue)
            self._admissions[candidate.queue].ended(candidate)

    def _take(self, candidate: Candidate, settings: QueueSettings) -> Claim | None:
        """The claim to run; None when there is none, which has been counted."""
        admission, taken = self._admissions[candidate.queue], None
        if self._is_out_of_time() or self._is_too_late_for(settings):
            admission.started_nothing(candidate)
            return None
        try:
            taken = self._parts.claimer.take(candidate, settings)
        # what can't be read or reached waits like a busy key, and stops nobody
        except Exception as error:  # noqa: BLE001
            self._parts.on_error(error, where=f"claiming task {candidate.task_id}")
            taken = KEY_BUSY
        if isinstance(taken, Claim):
            return taken
        if isinstance(taken, KeyBusy):
            self._defer(candidate, settings)
            return None
        self._tally.add(candidate.queue, "contended" if taken is None else taken)
        if taken is not None:
            self._last_event = self._clock.now()
        admission.started_nothing(candidate)
        return None

    def _defer(self, candidate: Candidate, settings: QueueSettings) -> None:
        self._tally.add(candidate.queue, "deferred")
        busy_until = self._clock.now() + self._poll(settings)
        self._admissions[candidate.queue].started_nothing(candidate, busy_until=busy_until)

    def _count(self, *, under_way: int, started: int, wake: bool = True) -> None:
        """Counting and waking are one step: whoever sees the count is not left waiting for the
        wake.
        """
        with self._lock:
            self._under_way += under_way
            self._started += started
            self._changes += 1
            if wake:
                self._changed.set()

    def _handler_gone(self, queue: str) -> None:
        self._slots.give_back(queue)
        self._changed.set()
