"""Reports errors that belong to no task: to the log, and to the application's listeners."""

import threading
from collections.abc import Callable
from typing import Final

from rdq_core.engine.ports import ErrorSink
from rdq_core.runtime.log import log_error

Listener = Callable[[BaseException], object]


class ErrorHub:
    """An `ErrorSink` that passes each error to another one, and then to each listener.

    An exception from a listener, which is the application's code, is reported too, and the other
    listeners are still called.
    """

    def __init__(self, first: ErrorSink) -> None:
        self._first = first
        self._listeners: tuple[Listener, ...] = ()
        self._lock = threading.Lock()

    def add(self, listener: Listener) -> None:
        """Call `listener` with every error from now on. A note on it says where it occurred."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def __call__(self, error: BaseException, *, where: str) -> None:
        """Report an error."""
        self._first(error, where=where)
        if self._listeners:
            error.add_note(f"rdq: {where}")
        for listener in self._listeners:
            try:
                listener(error)
            except Exception as broken:  # noqa: BLE001 - a listener's exception must not stop rdq
                self._first(broken, where="a listener of on_error")


PROCESS_ERRORS: Final = ErrorHub(log_error)
"""The error sink shared by every `Rdq` of this process on AWS, so that a worker's errors reach the
application's listeners.
"""
