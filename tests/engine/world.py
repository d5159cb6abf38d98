"""A whole rdq in memory whose time the test moves, and the helpers of its tests."""

import inspect
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

from rdq_core.client.rdq import Rdq
from rdq_core.config.settings import Host
from rdq_core.domain.attempt import Attempt
from rdq_core.domain.task import Task
from rdq_core.engine.admission import NoLimit
from rdq_core.engine.claims import Claimer
from rdq_core.engine.events import Event, EventName
from rdq_core.engine.ports import RateLimiter
from rdq_core.engine.report import QueueReport
from rdq_core.engine.routing import Router
from rdq_core.engine.stopping import Stop
from rdq_core.engine.sweep import Sweeper, SweepLimits
from rdq_core.handlers.aws_lambda import LambdaInvoker
from rdq_core.handlers.registry import Registry
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.wiring import Parts
from rdq_core.stores.memory import MemoryStore
from rdq_core.stores.memory_control import (
    MemoryAudit,
    MemoryCursorKey,
    MemoryJobs,
    MemoryQueues,
    MemoryReservations,
)
from rdq_core.testing.clock import FollowsClock, FrozenClock, NoJitter, SkipsSleep
from tests.support.functions import ScriptedLambda

QUEUE = "billing"
NOW_ONLY = SweepLimits(horizon=timedelta(0), linger=timedelta(0))
"""A sweep over what is due at this moment."""


class CountingIds:
    """Ids that count up, so that a failing test prints the same ones each time."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def task_id(self) -> str:
        return f"{next(self._numbers):026d}"

    def token(self) -> str:
        return f"token-{next(self._numbers)}"

    def nonce(self) -> str:
        return f"nonce-{next(self._numbers)}"


class Remembers:
    """An event sink and an error sink that keep what they get."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.errors: list[tuple[str, BaseException]] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def on_error(self, error: BaseException, *, where: str) -> None:
        self.errors.append((where, error))

    def names(self) -> list[EventName]:
        return [event.name for event in self.events]

    def last(self, name: EventName) -> Event:
        return [event for event in self.events if event.name is name][-1]


class World:
    """One queue, `billing`, with the configuration `config` and one shard; more can be declared."""

    def __init__(self, **config: Any) -> None:
        self.clock = FrozenClock()
        self.ids = CountingIds()
        self.told = Remembers()
        self.store = MemoryStore(clock=self.clock, ids=self.ids)
        self.queues = MemoryQueues(clock=self.clock)
        self.configure(QUEUE, **{"index_shards": 1, **config})
        self.audit = MemoryAudit()
        self.registry = Registry(queues=[QUEUE])
        self.limiter: RateLimiter = NoLimit()
        self.reservations = MemoryReservations()
        self.functions = ScriptedLambda()
        self.host = Host.WORKER
        self.parts = Parts(
            store=self.store,
            queues=self.queues,
            limiter=self.limiter,
            reservations=self.reservations,
            audit=self.audit,
            jobs=MemoryJobs(),
            cursor_key=MemoryCursorKey(b"a key that nobody knows"),
            clock=self.clock,
            ids=self.ids,
            jitter=NoJitter(),
            idle=SkipsSleep(self.clock),
            busy=FollowsClock(self.clock),
            events=self.told,
            on_error=self.told.on_error,
            invoker=lambda: LambdaInvoker(
                lambda _seconds: self.functions, on_error=self.told.on_error
            ),
        )
        self.rdq = Rdq(parts=self.parts)
        self._sweeper: Sweeper | None = None

    @property
    def sweeper(self) -> Sweeper:
        """One sweeper for the whole test, so that it keeps its slots."""
        if self._sweeper is None:
            self._sweeper = build_sweeper(
                self.parts,
                self.registry,
                serves=tuple(self.queues.all()),
                worker="host:1",
                rdq=self.rdq,
                host=self.host,
            )
        return self._sweeper

    def claimer(self) -> Claimer:
        """The claimer of another host."""
        router = Router(self.registry, None)
        return Claimer(
            self.store, router, clock=self.clock, ids=self.ids, events=self.told, jitter=NoJitter()
        )

    def configure(self, queue: str = QUEUE, **declared: Any) -> None:
        """Declare a queue, or change its declaration."""
        stored = self.queues.stored(queue)
        self.queues.put_declared(
            queue, declared, {}, expected_revision=stored.revision if stored else 0
        )

    def handler(self, function: Callable[..., Any], ref: str = "charge", **options: Any) -> None:
        """Register a handler; one without annotations takes text."""
        if inspect.isfunction(function):
            function.__annotations__.setdefault(
                next(iter(inspect.signature(function).parameters)), str
            )
        self.registry.register(ref, function, **options)

    def submit(
        self, payload: object = "order", *, queue: str = QUEUE, ref: str = "charge", **options: Any
    ) -> str:
        return self.rdq.submit(queue, ref, payload, **options).id

    def sweep(self, limits: SweepLimits = NOW_ONLY, stop: Stop | None = None) -> QueueReport:
        return self.sweeper.sweep(limits, stop).total

    def task(self, task_id: str) -> Task:
        return self.rdq.get(task_id)

    def attempts(self, task_id: str) -> list[Attempt]:
        return list(self.task(task_id).attempts)

    def error(self, task_id: str) -> Any:
        """The error of the last attempt."""
        return self.attempts(task_id)[-1].error


def raises(error: BaseException) -> Callable[[str], None]:
    """A handler that raises."""

    def handler(_order: str) -> None:
        raise error

    return handler


def sleeps_until(world: World, span: timedelta, call: Callable[[float], object]) -> None:
    """Have `call` called once, when an idle sweep has slept for `span`."""
    start, wait, waiting = world.clock.now(), world.parts.idle.wait, [call]

    def slept(wake: threading.Event, seconds: float) -> bool:
        if waiting and world.clock.now() - start >= span:
            waiting.pop()(seconds)
            return True
        return wait(wake, seconds)

    world.parts.idle.wait = slept  # type: ignore[method-assign]


def until(condition: Callable[[], bool], *, patience: float = 10.0, every: float = 0.002) -> None:
    """Wait for another thread or process in real time; fail when it never gets there."""
    glance = threading.Event()
    for _ in range(int(patience / every)):
        if condition():
            return
        glance.wait(every)
    raise AssertionError("it never happened")
