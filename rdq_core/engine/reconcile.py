"""Reconcilers: application code that repairs the gap between its own commit and its submit.

They run before the claims of each cycle. Each has a time limit and a thread of its own: one that
fails or hangs is reported, and claims go on.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rdq_core.engine.ports import Clock, ErrorSink, Sleeper
from rdq_core.engine.stopping import Stop


@dataclass(frozen=True, slots=True)
class Reconciler:
    """A named repair, bound to this host. Idempotent, and safe to run on several hosts at once."""

    name: str
    call: Callable[[], object]
    timeout: timedelta


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair as the application registered it: a function that takes the host's `Rdq`."""

    name: str
    call: Callable[[Any], object]
    timeout: timedelta

    def by(self, rdq: object) -> Reconciler:
        """The repair with this host's `Rdq`."""
        return Reconciler(self.name, functools.partial(self.call, rdq), self.timeout)


class Reconcilers:
    """The reconcilers of a host, `all` of them. One that is still running is not started again."""

    def __init__(
        self,
        reconcilers: Sequence[Reconciler],
        *,
        clock: Clock,
        sleeper: Sleeper,
        on_error: ErrorSink,
    ) -> None:
        self.all = [_ReconcilerRun(reconciler, on_error) for reconciler in reconcilers]
        self._clock = clock
        self._sleeper = sleeper
        self._on_error = on_error

    def run(self, stop: Stop, *, until: datetime | None = None) -> None:
        """Run each one in turn, and wait for its end, its time limit, `until`, or a stop.

        After `until` or a stop none is started; one that still runs is left to itself.
        """
        for run in self.all:
            left = None if until is None else until - self._clock.now()
            if stop.requested or (left is not None and left <= timedelta(0)):
                return
            if (done := run.start()) is not None:
                patience = run.reconciler.timeout
                self._wait_for(run, done, stop, patience if left is None else min(patience, left))

    def _wait_for(
        self, run: "_ReconcilerRun", done: threading.Event, stop: Stop, patience: timedelta
    ) -> None:
        with stop.waking(done):
            if not (stop.requested or self._sleeper.wait(done, patience / timedelta(seconds=1))):
                error = TimeoutError(f"not done within {patience}")
                self._on_error(error, where=f"reconciler {run.reconciler.name}")


class _ReconcilerRun:
    """Starts one reconciler, and remembers whether it still runs."""

    def __init__(self, reconciler: Reconciler, on_error: ErrorSink) -> None:
        self.reconciler = reconciler
        self._is_running = False
        self._on_error = on_error

    def start(self) -> threading.Event | None:
        """Start it; the event that its end sets. None when it still runs from an earlier cycle, or
        the system has no thread for it.
        """
        # No lock: only the sweep's thread starts, and the other thread only ever clears the flag.
        if self._is_running:
            return None
        self._is_running = True
        # A new event for each start: the thread of an earlier one may be about to set its own.
        done = threading.Event()
        name = f"rdq-reconciler-{self.reconciler.name}"
        try:
            threading.Thread(target=self._call, args=(done,), name=name, daemon=True).start()
        except RuntimeError as no_thread:
            self._is_running = False
            self._on_error(no_thread, where=f"reconciler {self.reconciler.name}")
            return None
        return done

    def _call(self, done: threading.Event) -> None:
        try:
            self.reconciler.call()
        except BaseException as error:  # noqa: BLE001 - whatever it raises, the sweep goes on
            self._on_error(error, where=f"reconciler {self.reconciler.name}")
        finally:
            self._is_running = False
            done.set()
