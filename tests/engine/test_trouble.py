"""An error in one part of a sweep is reported, releases what it held, and stops nothing else."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from rdq_core import Outcome, Status
from rdq_core.engine.admission import Admission
from rdq_core.engine.pool import RunnerPool
from rdq_core.engine.reconcile import Reconciler, Reconcilers
from rdq_core.engine.stopping import Stop
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import CorruptItem
from rdq_core.runtime.sweepers import build_sweeper
from tests.engine.world import NOW_ONLY, QUEUE, World, sleeps_until


def no_thread_named(monkeypatch: pytest.MonkeyPatch, prefix: str, *, times: int) -> None:
    """The system refuses to start the next threads of this name."""
    start, left = threading.Thread.start, [times]

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith(prefix) and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)


def test_a_run_whose_thread_cannot_be_started_gives_everything_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(dispatch={"concurrency": 1})
    world.configure("mail", index_shards=1)
    world.handler(lambda _order: None)
    first, second = world.submit(concurrency_key="ann"), world.submit(queue="mail")
    no_thread_named(monkeypatch, f"rdq-run-{first}", times=1)
    assert world.sweep().completed == 1
    assert (world.task(first).status, world.task(second).status) == (
        Status.PENDING,
        Status.SUCCEEDED,
    )
    assert [where for where, _ in world.told.errors] == ["looking for work in queue billing"]
    world.clock.advance("2s")
    assert world.sweep().completed == 1
    assert world.sweeper.slots.taken(QUEUE) == 0


def test_a_thread_that_cannot_be_started_is_not_tried_again_in_a_spin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.handler(lambda _order: None)
    for _ in range(20):
        world.submit()
    no_thread_named(monkeypatch, "rdq-run-", times=1_000)
    start = world.clock.now()
    world.sweep(SweepLimits(horizon=None, deadline=start + timedelta(seconds=10)))
    assert len(world.told.errors) <= 11


def test_a_handler_whose_thread_cannot_be_started_is_released_without_an_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(dispatch={"concurrency": 1})
    world.handler(lambda _order: None)
    task_id = world.submit()
    no_thread_named(monkeypatch, "rdq-handler-", times=1)
    assert world.sweep().released == 1
    task = world.task(task_id)
    assert task.failure is not None
    assert (task.status, task.attempt_count, task.attempts, task.failure.code) == (
        Status.PENDING,
        0,
        (),
        "task_unavailable",
    )
    world.clock.advance("2s")
    assert world.sweep().completed == 1


def test_a_reconciler_whose_thread_cannot_be_started_is_reported_and_tried_in_the_next_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, ran = World(), []
    reconcilers = Reconcilers(
        [Reconciler("pending", lambda: ran.append(1), timedelta(seconds=5))],
        clock=world.clock,
        sleeper=world.parts.busy,
        on_error=world.told.on_error,
    )
    no_thread_named(monkeypatch, "rdq-reconciler-", times=1)
    reconcilers.run(Stop())
    assert [where for where, _ in world.told.errors] == ["reconciler pending"]
    reconcilers.run(Stop())
    assert ran == [1]


def test_the_late_end_of_a_reconciler_is_not_taken_for_the_end_of_its_next_run() -> None:
    world, waited_for, running = World(), [], threading.Event()
    running.set()

    class EndsTheFirstLate:
        def wait(self, event: threading.Event, _seconds: float) -> bool:
            waited_for.append(event)
            waited_for[0].set()
            return event.is_set() and len(waited_for) > 1

    reconcilers = Reconcilers(
        [Reconciler("pending", lambda: running.wait(20), timedelta(seconds=5))],
        clock=world.clock,
        sleeper=EndsTheFirstLate(),
        on_error=world.told.on_error,
    )
    reconcilers.run(Stop())
    for thread in threading.enumerate():
        if thread.name == "rdq-reconciler-pending":
            thread.join()
    running.clear()
    reconcilers.run(Stop())
    running.set()
    assert len(waited_for) == len(world.told.errors) == 2


def test_a_bug_in_a_store_costs_one_task_its_turn_and_no_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(dispatch={"concurrency": 1})
    world.handler(lambda _order: None)
    bad, good = world.submit(concurrency_key="ann"), world.submit(concurrency_key="bob")
    claim = world.store.claim_keyed

    def buggy(candidate: Any, grant: Any) -> Any:
        if candidate.task_id == bad:
            raise KeyError("a bug")
        return claim(candidate, grant)

    monkeypatch.setattr(world.store, "claim_keyed", buggy)
    assert world.sweep().completed == 1
    assert world.task(good).status is Status.SUCCEEDED
    monkeypatch.undo()
    world.clock.advance("2s")
    assert world.sweep().completed == 1


def test_a_bug_while_settling_is_reported_and_lets_the_next_of_its_key_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(dispatch={"concurrency": 1}, execution={"lease": "2s", "handler_timeout": "1s"})
    world.handler(lambda _order: None)
    first = world.submit(concurrency_key="ann")
    complete, failures = world.store.complete, [CorruptItem("unreadable", task_id=first)]

    def fails_once(*arguments: Any, **options: Any) -> None:
        if failures:
            raise failures.pop()
        complete(*arguments, **options)

    monkeypatch.setattr(world.store, "complete", fails_once)
    world.submit(concurrency_key="ann")
    report = world.sweep(SweepLimits())
    assert (report.lost, report.completed) == (1, 2)
    assert [where for where, _ in world.told.errors] == [f"settling task {first}"]
    assert [attempt.outcome for attempt in world.attempts(first)] == [
        Outcome.LEASE_EXPIRED,
        Outcome.SUCCESS,
    ]


def test_a_queue_whose_configuration_cannot_be_read_stops_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.configure("broken", index_shards=1)
    world.handler(lambda _order: None)
    world.submit()
    settings = world.queues.settings

    def unreadable(queue: str) -> Any:
        if queue == "broken":
            raise CorruptItem("its item is no configuration")
        return settings(queue)

    monkeypatch.setattr(world.queues, "settings", unreadable)
    sweeper = build_sweeper(world.parts, world.registry, serves=["broken", QUEUE], worker="host:1")
    assert sweeper.sweep(NOW_ONLY).total.completed == 1
    assert {where for where, _ in world.told.errors} == {"configuration of queue broken"}


def test_a_worker_that_was_idle_for_days_still_sees_work() -> None:
    world = World()
    world.handler(lambda _order: None)

    def days_later(_seconds: float) -> None:
        world.clock.advance("3d")
        world.submit()

    sleeps_until(world, timedelta(seconds=5), days_later)
    limits = SweepLimits(horizon=None, deadline=world.clock.now() + timedelta(days=3, seconds=10))
    assert world.sweep(limits).completed == 1


def test_work_that_becomes_due_during_a_long_run_does_not_wait_for_its_end() -> None:
    world = World(execution={"lease": "2h", "handler_timeout": "1h"})
    started = threading.Event()

    def handler(order: str) -> None:
        if order == "long":
            world.clock.advance("10m")
            world.submit("short")
            started.wait(10)
        else:
            started.set()

    world.handler(handler)
    world.submit("long")
    assert world.sweep(SweepLimits()).completed == 2


def test_a_run_that_ends_after_the_last_look_leaves_no_follower_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, release, ended = World(), threading.Event(), threading.Event()
    world.handler(lambda _order: release.wait(10))
    for _ in range(2):
        world.submit(concurrency_key="ann")
    counted, wakes_at = RunnerPool._count, Admission.wakes_at

    def count(pool: RunnerPool, *, under_way: int, **options: Any) -> None:
        counted(pool, under_way=under_way, **options)
        if under_way < 0:
            ended.set()

    def ends_now(admission: Admission, now: Any) -> Any:
        answer = wakes_at(admission, now)
        release.set()
        assert ended.wait(10)
        return answer

    monkeypatch.setattr(RunnerPool, "_count", count)
    monkeypatch.setattr(Admission, "wakes_at", ends_now)
    assert world.sweep().completed == 2
