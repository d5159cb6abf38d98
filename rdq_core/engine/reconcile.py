"""Reconcilers: repairs of the gap between an application's own commit and its submit, run before
each claim cycle.

They are the application's code, so each has a time limit and a thread of its own: one that fails,
hangs or raises anything at all is reported, and claims go on.
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
    """A named repair. It must be idempotent, and safe while other hosts run it as well."""

    name: str
    call: Callable[[], object]
    timeout: timedelta


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair as the application wrote it: a function of the host's `Rdq`, which only the host can
    give.
    """

    name: str
    call: Callable[[Any], object]
    timeout: timedelta

    def by(self, rdq: object) -> Reconciler:
        """The repair as this host runs it."""
        return Reconciler(self.name, functools.partial(self.call, rdq), self.timeout)


class Reconcilers:
    """All repairs of a host. One that is still running is not started again."""

    def __init__(
        self,
        reconcilers: Sequence[Reconciler],
        *,
        clock: Clock,
        sleeper: Sleeper,
        on_error: ErrorSink,
    ) -> None:
        self._runs = [_Run(reconciler, on_error) for reconciler in reconcilers]
        self._clock = clock
        self._sleeper = sleeper
        self._on_error = on_error

    def run(self, stop: Stop, *, until: datetime | None = None) -> None:
        """Run each one, waiting for it no longer than its time limit, up to `until`, or when `stop`
        is requested.

        After either none is started; one that is under way goes on, and nobody waits for it.
        """
        for run in self._runs:
            left = None if until is None else until - self._clock.now()
            if stop.requested or (left is not None and left <= timedelta(0)):
                return
            if (done := run.start()) is not None:
                patience = run.reconciler.timeout
                self._wait_for(run, done, stop, patience if left is None else min(patience, left))

    def _wait_for(
        self, run: "_Run", done: threading.Event, stop: Stop, patience: timedelta
    ) -> None:
        with stop.waking(done):
            if not (stop.requested or self._sleeper.wait(done, patience / timedelta(seconds=1))):
                error = TimeoutError(f"not done within {patience}")
                self._on_error(error, where=f"reconciler {run.reconciler.name}")


class _Run:
    def __init__(self, reconciler: Reconciler, on_error: ErrorSink) -> None:
        self.reconciler = reconciler
        self._is_running = False
        self._on_error = on_error

    def start(self) -> threading.Event | None:
        """Start it; what is set at its end. None when it is still running from an earlier cycle, or
        has no thread.
        """
        if self._is_running:
            return None
        self._is_running = True
        done = threading.Event()  # of this start alone: the one before may be about to set its own
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
