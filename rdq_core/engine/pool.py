"""The threads that claim and run tasks, and the slots that bound them.

    Slots (one a process)                  RunnerPool (one a sweep)
    running   queue → handlers now         under_way   candidates that a thread works on
              running, those included      started     of them and before: claimed, or about to be
              that ignore their end        changes     starts and ends so far
                                           changed     set at every end

    acquire slot ─► start(candidate) ─► thread: claim ─► run ─► settle ─► Listener.on_end
                                                                └─ slot released once the
                                                                   handler's own thread has ended

The scheduler decides what starts; no other module starts a runner thread. A claim is made by the
thread that then runs the task, so no lease is ever held on work that waits.
"""

import functools
import threading
from collections import Counter
from enum import StrEnum
from typing import Protocol

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.lease import Claim
from rdq_core.engine.claims import Claimer
from rdq_core.engine.effective_settings import EffectiveSettings
from rdq_core.engine.ports import Candidate, ErrorSink, KeyBusy
from rdq_core.engine.report import Resolution
from rdq_core.engine.run import Runner
from rdq_core.engine.stopping import Stop


class Slots:
    """How many handlers of each queue are running in this process.

    A handler that ignores its cancellation keeps its slot until its thread ends, also after the
    sweep that started it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()

    def acquire(self, queue: str, limit: int) -> int:
        """Take one more slot, unless `limit` are taken. The number that was free, this one
        included; 0 when none was.
        """
        with self._lock:
            free = max(limit - self._running[queue], 0)
            self._running[queue] += free > 0
            return free

    def release(self, queue: str) -> None:
        """Give one slot back."""
        with self._lock:
            self._running[queue] -= 1

    def taken(self, queue: str) -> int:
        """The number of slots taken."""
        with self._lock:
            return self._running[queue]

    @property
    def any_taken(self) -> bool:
        """Whether any handler is running."""
        with self._lock:
            return self._running.total() > 0


class NotRun(StrEnum):
    """Why a started candidate was not run."""

    NO_TIME = "no_time"
    """The sweep ended, or its handler could no longer finish before the host does."""
    BUSY = "deferred"
    """Its concurrency key is in use, or its row could not be claimed because of an error."""
    CONTENDED = "contended"
    """Another host took it first."""


class Listener(Protocol):
    """What a pool asks and reports, from its own threads."""

    def may_claim(self, settings: QueueSettings) -> bool:
        """Whether a handler that starts now can finish in time."""
        ...

    def on_unreached(self, candidate: Candidate, settings: QueueSettings) -> None:
        """The function that handles the candidate could not be reached."""
        ...

    def on_end(
        self,
        candidate: Candidate,
        settings: QueueSettings,
        result: Resolution | NotRun,
        *,
        claimed: bool,
    ) -> None:
        """A candidate has been dealt with; `claimed` when it was run. Not called for a start that
        failed.
        """
        ...


class RunnerPool:
    """Runs candidates, each on a thread of its own, in slots that the caller has acquired."""

    def __init__(
        self,
        claimer: Claimer,
        runner: Runner,
        effective_settings: EffectiveSettings,
        *,
        slots: Slots,
        stop: Stop,
        listener: Listener,
        on_error: ErrorSink,
    ) -> None:
        self.changed = threading.Event()
        self.changes = 0
        self.started = 0
        self._under_way = 0
        self._lock = threading.Lock()
        self._claimer = claimer
        self._runner = runner
        self._effective_settings = effective_settings
        self._slots = slots
        self._stop = stop
        self._listener = listener
        self._on_error = on_error

    @property
    def is_at_work(self) -> bool:
        """Whether any thread works on a candidate."""
        with self._lock:
            return self._under_way > 0

    def start(self, candidate: Candidate, settings: QueueSettings) -> None:
        """Claim and run the candidate in the slot acquired for it, which the pool now releases.

        Raises RuntimeError when the system has no thread for it: the slot is then still the
        caller's.
        """
        thread = threading.Thread(
            target=self._work,
            args=(candidate, settings),
            name=f"rdq-run-{candidate.task_id}",
            daemon=True,
        )
        self._count(under_way=1, started=1, wake=False)
        try:
            thread.start()
        except BaseException:
            # Without waking the scheduler, or it would try again at once, for ever.
            self._count(under_way=-1, started=-1, wake=False)
            raise

    def _work(self, candidate: Candidate, settings: QueueSettings) -> None:
        result: Resolution | NotRun = NotRun.BUSY
        claimed = False
        try:
            settings = self._effective_settings.as_defined(candidate, settings)
            taken = self._claim(candidate, settings)
            if isinstance(taken, Claim):
                claimed, result = True, Resolution.LOST
                result = self._runner.run(
                    taken,
                    settings,
                    self._stop,
                    on_handler_end=functools.partial(self._release_slot, candidate.queue),
                    on_unreached=functools.partial(
                        self._listener.on_unreached, candidate, settings
                    ),
                )
            else:
                result = taken
        except Exception as bug:  # noqa: BLE001 - a thread must not die without a report
            self._on_error(bug, where=f"working on task {candidate.task_id}")
        finally:
            try:
                self._listener.on_end(candidate, settings, result, claimed=claimed)
            finally:
                if not claimed:
                    self._slots.release(candidate.queue)
                self._count(under_way=-1, started=0 if claimed else -1)

    def _claim(self, candidate: Candidate, settings: QueueSettings) -> Claim | Resolution | NotRun:
        if not self._listener.may_claim(settings):
            return NotRun.NO_TIME
        try:
            taken = self._claimer.take(candidate, settings)
        # An unreadable row, or storage that fails, waits like a busy key and stops no other task.
        except Exception as error:  # noqa: BLE001
            self._on_error(error, where=f"claiming task {candidate.task_id}")
            return NotRun.BUSY
        if taken is None:
            return NotRun.CONTENDED
        return NotRun.BUSY if isinstance(taken, KeyBusy) else taken

    def _count(self, *, under_way: int, started: int, wake: bool = True) -> None:
        # Counting and waking are one step: a thread that sees the new count has not missed the
        # wake-up.
        with self._lock:
            self._under_way += under_way
            self.started += started
            self.changes += 1
            if wake:
                self.changed.set()

    def _release_slot(self, queue: str) -> None:
        self._slots.release(queue)
        self.changed.set()
