"""Stopping by a signal or a deadline: every task is settled or released, and no budget is spent."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from rdq_core import Status, TaskContext
from rdq_core.domain.classification import Raised
from rdq_core.engine.context import TaskContext as Context
from rdq_core.engine.execution import Execution
from rdq_core.engine.ports import Clock
from rdq_core.engine.stopping import Stop
from rdq_core.engine.sweep import SweepLimits
from rdq_core.runtime.worker import Worker
from tests.engine.world import World, until

TIMEOUT = timedelta(seconds=45)
MARGIN = timedelta(seconds=5)


def assert_released(world: World, task_id: str) -> None:
    """Assert that the task is due, with its whole budget and nothing in its history."""
    task = world.task(task_id)
    assert task.failure is not None
    assert (task.status, task.attempt_count, task.attempts) == (Status.PENDING, 0, ())
    assert task.failure.code == "worker_shutdown"
    assert task.is_due(world.clock.now())


def limits_of(world: World, remaining: timedelta) -> SweepLimits:
    """The limits of a host that ends after this time, with a margin for its last writes."""
    ends_at = world.clock.now() + remaining - MARGIN
    return SweepLimits(deadline=ends_at - TIMEOUT, ends_at=ends_at)


@pytest.mark.parametrize("remaining", [timedelta(0), timedelta(seconds=-5), timedelta(seconds=50)])
def test_a_host_without_time_for_a_whole_handler_claims_nothing(remaining: timedelta) -> None:
    world = World()
    world.handler(lambda _order: None)
    task_id = world.submit()
    assert world.sweep(limits_of(world, remaining)).claimed == 0
    assert world.task(task_id).status is Status.PENDING


def test_near_its_deadline_a_host_asks_handlers_to_stop_and_releases_those_that_do() -> None:
    world = World(execution={"handler_timeout": "45s"})

    def cooperates(_order: str, ctx: TaskContext) -> None:
        world.clock.advance("10s")
        assert ctx.wait(10)

    world.handler(cooperates)
    task_id = world.submit()
    assert world.sweep(limits_of(world, timedelta(seconds=60))).released == 1
    assert_released(world, task_id)


def test_at_its_end_a_host_releases_who_ignores_that_and_keeps_what_was_done_before() -> None:
    world, end = World(execution={"lease": "10m", "handler_timeout": "5m"}), threading.Event()

    def ignores(_order: str) -> None:
        world.clock.advance("10s")
        until(lambda: world.task(quick).status is Status.SUCCEEDED)
        world.clock.advance("45s")
        end.wait(20)

    world.handler(ignores, "ignores")
    world.handler(lambda _order: None, "finishes")
    quick, stuck = world.submit(ref="finishes"), world.submit(ref="ignores")
    report = world.sweep(limits_of(world, timedelta(seconds=60)))
    end.set()
    assert (report.completed, report.released) == (1, 1)
    assert_released(world, stuck)


def test_a_host_that_may_claim_no_more_tasks_still_heeds_its_end() -> None:
    world, end = World(execution={"lease": "10m", "handler_timeout": "5m"}), threading.Event()

    def ignores(_order: str) -> None:
        world.clock.advance("55s")
        end.wait(20)

    world.handler(ignores)
    task_id = world.submit()
    assert world.sweep(replace(limits_of(world, timedelta(seconds=60)), max_tasks=1)).released == 1
    end.set()
    assert_released(world, task_id)


@pytest.mark.parametrize("grace", [timedelta(0), timedelta(seconds=-1)])
def test_without_a_grace_everything_is_released_at_once(grace: timedelta) -> None:
    world, end = World(), threading.Event()
    worker = Worker(world.parts, world.registry, grace=grace)

    def ignores(_order: str) -> None:
        worker.stop()
        end.wait(20)

    world.handler(ignores)
    task_id = world.submit()
    assert worker.run().total.released == 1
    assert worker.has_stragglers
    end.set()
    assert_released(world, task_id)


def test_a_second_stop_ends_the_grace_of_the_first() -> None:
    world, end = World(), threading.Event()
    worker = Worker(world.parts, world.registry)

    def ignores(_order: str) -> None:
        worker.stop()
        worker.stop(grace=timedelta(0))
        worker.stop()
        end.wait(20)

    world.handler(ignores)
    task_id = world.submit()
    assert worker.run().total.released == 1
    end.set()
    assert_released(world, task_id)


def test_a_task_that_was_claimed_as_the_stop_came_is_released_and_its_handler_never_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, stop, ran = World(), Stop(), []
    world.handler(lambda _order: ran.append(1))
    task_id = world.submit()
    load = world.store.load

    def stopped_meanwhile(claim: object) -> object:
        stop.request()
        return load(claim)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store, "load", stopped_meanwhile)
    assert world.sweep(stop=stop).released == 1
    assert ran == []
    assert_released(world, task_id)


def test_a_candidate_whose_thread_starts_after_the_stop_is_not_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, stop = World(), Stop()
    world.handler(lambda _order: None)
    world.submit()
    start = threading.Thread.start

    def stopped_meanwhile(thread: threading.Thread) -> None:
        stop.request()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", stopped_meanwhile)
    assert world.sweep(stop=stop).claimed == 0


class _Handler:
    ref, is_async = "charge", True

    def __init__(self) -> None:
        self.ran = False

    async def call(self, _value: object, _context: Context) -> None:
        self.ran = True
        await asyncio.sleep(30)


def test_a_cancellation_that_overtakes_the_start_of_a_coroutine_is_not_lost() -> None:
    handler, changed = _Handler(), threading.Event()
    execution = Execution(handler, None, None, changed=changed)  # type: ignore[arg-type]
    execution.interrupt()
    execution.start()
    assert changed.wait(10)
    assert isinstance(execution.end, Raised)
    assert isinstance(execution.end.exception, asyncio.CancelledError)
    assert not handler.ran


@pytest.fixture
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class NotInMain:
    """A clock that a signal handler must not ask: its thread may hold the lock of the real one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_forbidden = False

    def now(self) -> datetime:
        assert not (self.is_forbidden and threading.current_thread() is threading.main_thread())
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()


def test_a_signal_takes_no_lock_that_the_thread_it_interrupts_may_hold(signals: None) -> None:
    world = World()
    clock = NotInMain(world.clock)
    worker = Worker(replace(world.parts, clock=clock), world.registry)
    worker.stop_on_signals()
    clock.is_forbidden = True
    signal.raise_signal(signal.SIGTERM)
    clock.is_forbidden = False
    assert worker.run().total.claimed == 0


def test_signals_are_for_the_main_thread_only() -> None:
    world, refusals = World(), []

    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="main thread"):
            Worker(world.parts, world.registry).stop_on_signals()
        refusals.append(1)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(10)
    assert refusals == [1]
