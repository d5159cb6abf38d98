"""Reconcilers: repairs of the gap between an application's own commit and its submit, run before each claim cycle.

They are the application's code, so each has a time limit and a thread of its own: one that fails, hangs or raises
anything at all is reported, and claims go on.
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
    """A repair as the application wrote it: a function of the host's `Rdq`, which only the host can give."""

    name: str
    call: Callable[[Any], object]
    timeout: timedelta

    def by(self, rdq: object) -> Reconciler:
        """The repair as this host runs it."""
        return Reconciler(self.name, functools.partial(self.call, rdq), self.timeout)


class Reconcilers:
    """All repairs of a host. One that is still running is not started again."""

    def __init__(
        self, reconcilers: Sequence[Reconciler], *, clock: Clock, sleeper: Sleeper, on_error: ErrorSink
    ) -> None:
        self._runs = [_Run(reconciler, on_error) for reconciler in reconcilers]
        self._clock = clock
        self._sleeper = sleeper
        self._on_error = on_error

    def run(self, stop: Stop, *, until: datetime | None = None) -> None:
        """Run each one, waiting for it no longer than its time limit, up to `until`, or when `stop` is requested.

        After a stop none is started; one that is under way goes on, and nobody waits for it.
        """
        for run in self._runs:
            if stop.requested:
                return
            patience = run.reconciler.timeout
            if until is not None:
                patience = min(patience, until - self._clock.now())
            if run.start():
                self._wait_for(run, stop, patience)

    def _wait_for(self, run: "_Run", stop: Stop, patience: timedelta) -> None:
        with stop.waking(run.changed):
            if not (stop.requested or self._sleeper.wait(run.changed, patience / timedelta(seconds=1))):
                error = TimeoutError(f"not done within {patience}")
                self._on_error(error, where=f"reconciler {run.reconciler.name}")


class _Run:
    def __init__(self, reconciler: Reconciler, on_error: ErrorSink) -> None:
        self.reconciler = reconciler
        self.changed = threading.Event()
        self._is_running = False
        self._on_error = on_error

    def start(self) -> bool:
        """Start it, unless it is still running from an earlier cycle."""
        if self._is_running:
            return False
        self._is_running = True
        self.changed.clear()
        thread = threading.Thread(target=self._call, name=f"rdq-reconciler-{self.reconciler.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as no_thread:
            self._end()
            self._on_error(no_thread, where=f"reconciler {self.reconciler.name}")
        return True

    def _call(self) -> None:
        try:
            self.reconciler.call()
        except BaseException as error:  # noqa: BLE001 - whatever it raises, the sweep goes on
            self._on_error(error, where=f"reconciler {self.reconciler.name}")
        finally:
            self._end()

    def _end(self) -> None:
        self._is_running = False
        self.changed.set()
