"""The long-running worker: sweeps in one process until a stop, or until its queues are drained."""

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
"""How long handlers may run on after SIGTERM. Then the tasks still running are released."""
AT_ONCE: Final = timedelta(seconds=3)
"""How long the releases after a second signal may take."""
_ENDED_BY_SIGNAL: Final = 128


class Worker:
    """Serves queues with the handlers of one registry.

    `serves` replaces the registry's own list of queues. Raises InputInvalid with neither: a worker
    that guessed its queues would dead-letter other hosts' tasks as unroutable. Reconcilers are
    called with `rdq`.
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
        """Serve until nothing is due within `horizon`, checked repeatedly for two seconds."""
        return self._sweeper.sweep(SweepLimits(horizon=horizon), self._stop)

    @property
    def has_stragglers(self) -> bool:
        """Whether a handler that ignored its cancellation still runs.

        Its thread is a daemon, but the handler may have started others.
        """
        return self._sweeper.slots.any_taken

    def stop(self, *, grace: timedelta | None = None) -> None:
        """Stop claiming, and ask handlers to stop.

        Their tasks are released when they give up or the grace has passed. Another call can only
        shorten the grace. Zero or less releases everything at once.
        """
        try:
            deadline = self._parts.clock.now() + (self._grace if grace is None else grace)
        except RdqError:
            # The storage clock has never had an answer, so nothing was claimed: no need to wait.
            deadline = None
        self._stop.request(deadline=deadline)

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT. For the main thread only; raises RuntimeError elsewhere.

        A second signal releases at once what still runs. After three more seconds, or at a third
        signal, the process exits: what is not released by then waits for its lease to lapse.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signal handlers can be set in the main thread only")
        signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(
            target=self._follow_signals, args=(signals,), name="rdq-signals", daemon=True
        ).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            # A signal handler interrupts the main thread anywhere, even while it holds a lock.
            # SimpleQueue.put is reentrant and takes none; everything else runs on the thread above.
            signal.signal(number, lambda number, _frame: signals.put(number))

    def _follow_signals(self, signals: "queue.SimpleQueue[int]") -> None:
        signals.get()
        self.stop()
        number = signals.get()
        self.stop(grace=timedelta(0))
        with contextlib.suppress(queue.Empty):
            number = signals.get(timeout=AT_ONCE.total_seconds())
        os._exit(_ENDED_BY_SIGNAL + number)
