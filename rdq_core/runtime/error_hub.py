"""Where errors go that have no task to be stored on: the log, and whoever asked to hear of them."""

import threading
from collections.abc import Callable
from typing import Final

from rdq_core.engine.ports import ErrorSink
from rdq_core.runtime.log import log_error

Listener = Callable[[BaseException], object]


class ErrorHub:
    """An `ErrorSink` that passes on to another one, and then to each listener.

    Listeners are the application's code: one that raises is itself reported, and stops nobody.
    """

    def __init__(self, first: ErrorSink) -> None:
        self._first = first
        self._listeners: tuple[Listener, ...] = ()
        self._lock = threading.Lock()

    def add(self, listener: Listener) -> None:
        """Tell `listener` of every error from now on. A note on the error says where it happened."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def __call__(self, error: BaseException, *, where: str) -> None:
        """Tell everybody."""
        self._first(error, where=where)
        if self._listeners:
            error.add_note(f"rdq: {where}")
        for listener in self._listeners:
            try:
                listener(error)
            except Exception as broken:  # noqa: BLE001 - whatever a listener raises, rdq goes on
                self._first(broken, where="a listener of on_error")


PROCESS_ERRORS: Final = ErrorHub(log_error)
"""What every rdq of this process that is on AWS tells its errors to: a worker's reach the
application's listener.
"""
