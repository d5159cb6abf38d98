"""A replacement for `threading`, under the scheduler's control.

The engine's modules get it under the name `threading` for as long as a run lasts. The product is
not changed for it, and other modules, other threads and the test session keep the real one.
"""

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self
from unittest.mock import patch

from rdq_core.engine import admission, execution, pool, presence, run, stopping, sweep
from rdq_core.ops import advancing
from rdq_core.runtime import kicking
from rdq_core.stores.dynamodb import clock, sender
from tests.simulation.scheduler import FOREVER, SECOND, Scheduler, Strand

MODULES: Final = (
    clock,
    execution,
    kicking,
    admission,
    run,
    stopping,
    pool,
    sweep,
    sender,
    presence,
)
"""The modules that start threads, wait, or hold a lock during a request."""


class SimulatedThreading:
    """The part of `threading` that these modules use."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._events = 0

    def Event(self) -> "SimulatedEvent":  # noqa: N802 - as the module has it
        """An event. Its number keeps sets of events in the same order in each run."""
        self._events += 1
        return SimulatedEvent(self._scheduler, self._events)

    def Lock(self) -> "SimulatedLock":  # noqa: N802
        """A lock, always reentrant: deadlocks of a thread with itself are not what is tested."""
        return SimulatedLock(self._scheduler)

    RLock = Lock

    def local(self) -> types.SimpleNamespace:
        """What each thread has for itself. Only requests of a real boto3 client have anything in
        it.
        """
        return types.SimpleNamespace()

    def Thread(  # noqa: N802
        self, *, target: Callable[..., object], name: str, args: Sequence[Any] = (), daemon: bool
    ) -> "SimulatedThread":
        """A thread of the process that makes it."""
        assert daemon
        return SimulatedThread(self._scheduler, lambda: target(*args), name)


class SimulatedEvent:
    """An event on which threads of the scheduler wait."""

    def __init__(self, scheduler: Scheduler, number: int) -> None:
        self._scheduler = scheduler
        self._number = number
        self._is_set = False
        self._waiting: list[Strand] = []

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Wake the threads that wait."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for strand in waiting:
            self._scheduler.wake(strand)

    def clear(self) -> None:
        """As if it was never set."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set or the time is over."""
        if self._is_set:
            return True
        strand = self._scheduler.current
        self._waiting.append(strand)
        span = FOREVER if timeout is None else max(round(timeout * SECOND), 1)
        self._scheduler.wait(self._scheduler.now + span)
        if strand in self._waiting:
            self._waiting.remove(strand)
        return self._is_set


class SimulatedLock:
    """A lock that is held over other threads' turns."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: Strand | None = None
        self._depth = 0
        self._waiting: list[Strand] = []

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Wait until no other thread holds it; without waiting, False if one does."""
        strand = self._scheduler.current
        while self._holder not in (None, strand):
            if not blocking:
                return False
            self._waiting.append(strand)
            self._scheduler.wait()
        self._holder = strand
        self._depth += 1
        return True

    def release(self) -> None:
        """Let others have it, once it was released as often as it was acquired."""
        self._depth -= 1
        if self._depth == 0:
            self._holder = None
            waiting, self._waiting = self._waiting, []
            for strand in waiting:
                self._scheduler.wake(strand)


class OneByOne:
    """A thread pool that runs each call at once, on the caller's thread."""

    def __init__(self, at_once: int, *, thread_name_prefix: str) -> None:
        """As the library has it."""

    def map(self, call: Callable[[Any], Any], given: Sequence[Any]) -> Iterator[Any]:
        """Each in its turn."""
        return map(call, given)

    def shutdown(self, *, cancel_futures: bool) -> None:
        """Nothing was begun that isn't done."""


class SimulatedThread:
    """A thread that the scheduler gives its turns."""

    def __init__(self, scheduler: Scheduler, target: Callable[[], object], name: str) -> None:
        self._scheduler = scheduler
        self._target = target
        self._name = name

    def start(self) -> None:
        """Start it in the caller's process."""
        self._scheduler.spawn(self._scheduler.current.home, self._target, self._name)


@contextlib.contextmanager
def under(scheduler: Scheduler) -> Iterator[None]:
    """Let the engine take the scheduler's threads for real ones."""
    simulated, real = (
        SimulatedThreading(scheduler),
        {module: module.threading for module in MODULES},
    )
    try:
        for module in MODULES:
            module.threading = simulated  # type: ignore[attr-defined]
        with patch.object(advancing, "ThreadPoolExecutor", OneByOne):
            yield
    finally:
        for module, threading in real.items():
            module.threading = threading  # type: ignore[attr-defined]
