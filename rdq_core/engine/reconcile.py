"""Reconcilers: repairs of the gap between an application's own commit and its submit, run before each claim cycle.

They are the application's code, so each has a time limit and a thread of its own: one that fails, hangs or raises
anything at all is reported, and claims go on.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rdq_core.engine.ports import ErrorSink, Sleeper


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

    def __init__(self, reconcilers: Sequence[Reconciler], *, sleeper: Sleeper, on_error: ErrorSink) -> None:
        self._runs = [_Run(reconciler, on_error) for reconciler in reconcilers]
        self._sleeper = sleeper
        self._on_error = on_error

    def run(self) -> None:
        """Run each one, waiting for it no longer than its time limit."""
        for run in self._runs:
            if run.start() and not self._sleeper.wait(run.done, run.reconciler.timeout / timedelta(seconds=1)):
                self._on_error(
                    TimeoutError(f"not done within {run.reconciler.timeout}"), where=f"reconciler {run.reconciler.name}"
                )


class _Run:
    def __init__(self, reconciler: Reconciler, on_error: ErrorSink) -> None:
        self.reconciler = reconciler
        self.done = threading.Event()
        self.done.set()
        self._on_error = on_error

    def start(self) -> bool:
        """Start it, unless it is still running from an earlier cycle."""
        if not self.done.is_set():
            return False
        self.done.clear()
        thread = threading.Thread(target=self._call, name=f"rdq-reconciler-{self.reconciler.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as no_thread:
            self.done.set()
            self._on_error(no_thread, where=f"reconciler {self.reconciler.name}")
        return True

    def _call(self) -> None:
        try:
            self.reconciler.call()
        except BaseException as error:  # noqa: BLE001 - whatever it raises, the sweep goes on
            self._on_error(error, where=f"reconciler {self.reconciler.name}")
        finally:
            self.done.set()
