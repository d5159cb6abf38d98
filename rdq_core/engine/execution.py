"""One handler running on a thread of its own, so that it can never stop the run that watches it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from rdq_core.domain.classification import Raised, Returned
from rdq_core.engine.context import TaskContext, current_delivery
from rdq_core.engine.ports import Handler


class Execution:
    """A handler's thread. When it is done, `ended` is true, `end` says how, and `changed` is set.

    A thread can't be killed: a handler that ignores its cancellation runs on as a daemon.
    """

    def __init__(
        self, handler: Handler, value: Any, context: TaskContext, *, changed: threading.Event
    ) -> None:
        self.end: Returned | Raised | None = None
        self.ended = False
        self._handler = handler
        self._value = value
        self._context = context
        self._changed = changed
        self._lock = threading.Lock()
        self._on_end: list[Callable[[], None]] = []
        self._interrupted = False
        self._stop_loop: Callable[[], None] | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"rdq-handler-{handler.ref}", daemon=True
        )

    def start(self) -> None:
        """Start the handler. Raises RuntimeError when the system has no thread for it; it then
        counts as ended.
        """
        try:
            self._thread.start()
        except RuntimeError:
            self._finish()
            raise

    def interrupt(self) -> None:
        """Cancel the coroutine of an async handler, even one that has not begun yet. A sync handler
        has to check its context.
        """
        with self._lock:
            self._interrupted = True
            if self._stop_loop is not None:
                self._stop_loop()

    def on_end(self, call: Callable[[], None]) -> None:
        """Have `call` called when the handler's thread ends; at once when it has ended already."""
        with self._lock:
            if not self.ended:
                self._on_end.append(call)
                return
        call()

    def _run(self) -> None:
        try:
            # Not reset afterwards: a thread has a context of its own, which ends with it. A loop's
            # tasks inherit it.
            current_delivery.set(self._context)
            if self._handler.is_async:
                value = asyncio.run(self._call_async())
            else:
                value = self._handler.call(self._value, self._context)
            self.end = Returned(value)
        # Whatever a handler raises is its outcome, and never an error of this thread.
        except BaseException as exception:  # noqa: BLE001
            self.end = Raised(exception)
        finally:
            self._finish()

    def _finish(self) -> None:
        with self._lock:
            self.ended = True
            waiting, self._on_end = self._on_end, []
        for call in waiting:
            call()
        # Last, so that a run that is woken by it sees `ended`.
        self._changed.set()

    async def _call_async(self) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio.run always runs its main coroutine in a task
        with self._lock:
            self._stop_loop = lambda: _cancel_soon(loop, task)
            if self._interrupted:  # `interrupt` came before there was a loop to stop
                raise asyncio.CancelledError
        try:
            return await self._handler.call(self._value, self._context)
        finally:
            with self._lock:
                self._stop_loop = None


def _cancel_soon(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> None:
    with contextlib.suppress(RuntimeError):  # the loop has closed: there is nothing left to cancel
        loop.call_soon_threadsafe(task.cancel)
