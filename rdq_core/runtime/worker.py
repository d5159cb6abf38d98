"""The long-running worker: the engine in one process, until it is told to stop or has drained its
queues.
"""

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rdq_core.engine.ports import HandlerSource
from rdq_core.engine.report import SweepReport
from rdq_core.engine.stopping import Stop
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import InputInvalid, RdqError
from rdq_core.runtime.invocation import worker_name
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.wiring import Parts

DRAIN_HORIZON: Final = timedelta(hours=1)
GRACE: Final = timedelta(seconds=25)
"""How long handlers that don't heed their cancellation may go on after SIGTERM; then their tasks
are released.
"""
AT_ONCE: Final = timedelta(seconds=3)
"""How long the releases may take that a second signal asks for."""
_ENDED_BY_SIGNAL: Final = 128


class Worker:
    """Serves queues with the handlers of one registry.

    `serves` replaces the registry's own list of queues; with neither, InputInvalid: a worker that
    guessed its queues would kill other hosts' tasks as unroutable. `rdq` is what the handlers'
    reconcilers get, of the same parts.
    """

    def __init__(
        self,
        parts: Parts,
        handlers: HandlerSource,
        *,
        serves: Sequence[str] = (),
        grace: timedelta = GRACE,
        rdq: object | None = None,
    ) -> None:
        queues = tuple(serves) or tuple(handlers.queues)
        if not queues:
            raise InputInvalid(
                "queues", "none to serve", hint="give -q QUEUE, or Registry(queues=[...])"
            )
        self._parts = parts
        self._grace = grace
        self._stop = Stop()
        self._sweeper = build_sweeper(parts, handlers, serves=queues, worker=worker_name(), rdq=rdq)

    def run(self) -> SweepReport:
        """Serve until `stop`."""
        return self._sweeper.sweep(SweepLimits(horizon=None), self._stop)

    def drain(self, horizon: timedelta = DRAIN_HORIZON) -> SweepReport:
        """Serve until nothing is due within `horizon`, as two readings agree."""
        return self._sweeper.sweep(SweepLimits(horizon=horizon), self._stop)

    @property
    def has_stragglers(self) -> bool:
        """Whether a handler still runs that ignored its end. It is on a daemon thread, but may have
        started others.
        """
        return self._sweeper.slots.any_taken

    def stop(self, *, grace: timedelta | None = None) -> None:
        """Claim nothing more; ask handlers to stop, and release what they give up or haven't done
        after the grace.

        Called again, it can only shorten what is left of the grace. Zero or less releases
        everything at once.
        """
        try:
            deadline = self._parts.clock.now() + (self._grace if grace is None else grace)
        except (
            RdqError
        ):  # storage has never answered, so nothing was claimed and there is nothing to wait for
            deadline = None
        self._stop.request(deadline=deadline)

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT. The second releases at once what still runs; what that can't
        within three seconds, or by a third signal, is left to its lease. For the main thread only.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals are the main thread's")
        signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(
            target=self._heed, args=(signals,), name="rdq-signals", daemon=True
        ).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            # A handler interrupts the main thread anywhere, also where it holds a lock; this put
            # alone takes none.
            signal.signal(number, lambda number, _frame: signals.put(number))

    def _heed(self, signals: "queue.SimpleQueue[int]") -> None:
        signals.get()
        self.stop()
        number = signals.get()
        self.stop(grace=timedelta(0))
        with contextlib.suppress(queue.Empty):
            number = signals.get(timeout=AT_ONCE.total_seconds())
        os._exit(_ENDED_BY_SIGNAL + number)
