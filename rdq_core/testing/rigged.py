"""Handlers that fail when a test wants them to, and else do what they do."""

import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rdq_core.domain.attempt import Outcome
from rdq_core.engine.context import TaskContext
from rdq_core.engine.ports import Handler, HandlerSource
from rdq_core.engine.reconcile import Repair


class Failures:
    """What the next attempts of each handler end in. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, deque[BaseException]] = defaultdict(deque)

    def add(self, handler_ref: str, error: BaseException, times: int) -> None:
        """Let so many more attempts end in it."""
        if times < 1:
            raise ValueError(f"times counts from 1, not from {times}")
        with self._lock:
            self._next[handler_ref].extend([error] * times)

    def meet(self, handler_ref: str) -> None:
        """Raise what this attempt is to end in, if anything."""
        with self._lock:
            error = self._next[handler_ref].popleft() if self._next[handler_ref] else None
        if error is not None:
            raise error


class Rigged:
    """The handlers of another source, each of which meets its failures first."""

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
