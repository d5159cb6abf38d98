"""Handlers that fail when a test injects a failure, and otherwise run as usual."""

import difflib
import threading
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from rdq_core.domain.attempt import Outcome
from rdq_core.engine.context import TaskContext
from rdq_core.engine.ports import Handler, HandlerSource
from rdq_core.engine.reconcile import Repair
from rdq_core.errors import NotRegistered

Failure: TypeAlias = BaseException | type[BaseException]


class Failures:
    """The failures injected into the next attempts of each handler. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, deque[Failure]] = defaultdict(deque)
        self._unmet: set[str] = set()

    def add(self, handler_ref: str, error: Failure, times: int) -> None:
        """Let the next `times` attempts raise `error`.

        Raises TypeError unless it can be raised, and ValueError for a `times` below 1.
        """
        kind: object = error if isinstance(error, type) else type(error)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"an attempt ends in an exception, not in a {type(error).__name__}")
        if isinstance(error, type):
            _check_raisable(error)
        if times < 1:
            raise ValueError(f"times counts from 1, not from {times}")
        with self._lock:
            self._next[handler_ref].extend([error] * times)
            self._unmet.add(handler_ref)

    def check_known(self, handler_refs: Collection[str]) -> None:
        """Raises NotRegistered if a failure was injected into a handler that is not among these."""
        for ref in sorted(self._unmet - set(handler_refs)):
            near = difflib.get_close_matches(ref, handler_refs, n=1)
            known = ", ".join(sorted(handler_refs)) or "none"
            raise NotRegistered(
                f"fail_next({ref!r}): there is no such handler among {known}",
                hint=f"did you mean {near[0]}?"
                if near
                else "ask for it after draining other handlers",
            )

    def check_met(self) -> None:
        """Raises AssertionError if all failures injected into some handler met no attempt."""
        if self._unmet:
            asked = " and ".join(f"fail_next({ref!r})" for ref in sorted(self._unmet))
            raise AssertionError(f"{asked} had no effect: no attempt was run since")

    def meet(self, handler_ref: str) -> None:
        """Raise the failure injected into this attempt, if any."""
        with self._lock:
            error = self._next[handler_ref].popleft() if self._next[handler_ref] else None
            self._unmet.discard(handler_ref)
        if error is not None:
            raise error


class Rigged:
    """The handlers of another source, with injected failures."""

    def __init__(self, source: HandlerSource, failures: Failures) -> None:
        self._source = source
        self._failures = failures

    @property
    def queues(self) -> Sequence[str]:
        """See `HandlerSource.queues`."""
        return self._source.queues

    @property
    def classes(self) -> Mapping[type[BaseException], Outcome]:
        """See `HandlerSource.classes`."""
        return self._source.classes

    @property
    def repairs(self) -> Sequence[Repair]:
        """See `HandlerSource.repairs`."""
        return self._source.repairs

    def find(self, handler_ref: str) -> Handler | None:
        """See `HandlerSource.find`."""
        handler = self._source.find(handler_ref)
        return None if handler is None else replace(handler, call=self._rigged(handler))

    def _rigged(self, handler: Handler) -> Any:
        def call(given: Any, ctx: TaskContext) -> Any:
            self._failures.meet(handler.ref)
            return handler.call(given, ctx)

        return call


def _check_raisable(kind: type[BaseException]) -> None:
    """Raises TypeError for an exception class that needs arguments: raising it would fail by
    itself.
    """
    try:
        kind()
    except TypeError as problem:
        raise TypeError(
            f"a {kind.__name__} can't be raised by its class; give one that is made: {problem}"
        ) from None
