"""The long-running worker: the engine in one process, until it is told to stop or has drained its queues."""

import os
import signal
import threading
from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import Final

from rdq_core.engine.ports import HandlerSource
from rdq_core.engine.report import SweepReport
from rdq_core.engine.stopping import Stop
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import InputInvalid, RdqError
from rdq_core.runtime.invocation import worker_name
from rdq_core.runtime.wiring import Parts

DRAIN_HORIZON: Final = timedelta(hours=1)
GRACE: Final = timedelta(seconds=25)
"""How long handlers that don't heed their cancellation may go on after SIGTERM; then their tasks are released."""
_STOPPED_AT_ONCE: Final = 128


class Worker:
    """Serves queues with the handlers of one registry.

    `serves` replaces the registry's own list of queues; with neither, InputInvalid: a worker that guessed its queues
    would kill other hosts' tasks as unroutable. `rdq` is what the handlers' reconcilers get, of the same parts.
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
            raise InputInvalid("queues", "none to serve", hint="give -q QUEUE, or Registry(queues=[...])")
        self._parts = parts
        self._grace = grace
        self._stop = Stop()
        self._sweeper = parts.sweeper(handlers, serves=queues, worker=worker_name(), rdq=rdq)

    def run(self) -> SweepReport:
        """Serve until `stop`."""
        return self._sweeper.sweep(SweepLimits(horizon=None), self._stop)

    def drain(self, horizon: timedelta = DRAIN_HORIZON) -> SweepReport:
        """Serve until nothing is due within `horizon`, as two readings agree."""
        return self._sweeper.sweep(SweepLimits(horizon=horizon), self._stop)

    def stop(self) -> None:
        """Claim nothing more; ask handlers to stop, and release what they give up or haven't done after the grace."""
        try:
            deadline = self._parts.clock.now() + self._grace
        except RdqError:  # storage has never answered, so nothing was claimed and there is nothing to wait for
            deadline = None
        self._stop.request(deadline=deadline)

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT; at once, leaving leases to lapse, on the second. For the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals are the main thread's")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._stop.requested:
            os._exit(_STOPPED_AT_ONCE + number)
        self.stop()
