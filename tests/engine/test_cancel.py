"""Cancelling at every point of a task's life: one write wins, and a cancelled task stays so."""

import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rdq_core import Abort, Status, TaskContext
from rdq_core.engine.events import EventName
from rdq_core.engine.stopping import Stop
from rdq_core.errors import TaskConflict
from tests.engine.test_sweep import claimed_by_nobody_alive
from tests.engine.world import World

ENDS = {EventName.SUCCEEDED, EventName.RETRY_SCHEDULED, EventName.DEAD_LETTERED, EventName.RELEASED}


class Cancels:
    """Cancels the one task, just before or just after the store's next call of a verb."""

    def __init__(
        self, world: World, verb: str, *, after: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.refusals: list[TaskConflict] = []
        self.task_id = ""
        self._world = world
        call: Callable[..., Any] = getattr(world.store, verb)
        calls: list[int] = []

        def disturbed(*arguments: Any, **options: Any) -> Any:
            calls.append(1)
            if not after and len(calls) == 1:
                self.cancel()
            answer = call(*arguments, **options)
            if after and len(calls) == 1:
                self.cancel()
            return answer

        monkeypatch.setattr(world.store, verb, disturbed)

    def cancel(self) -> None:
        now = self._world.clock.now()
        try:
            self._world.store.cancel(
                self.task_id, now=now, op_id="op", expires_at=now + timedelta(days=30)
            )
        except TaskConflict as refused:
            self.refusals.append(refused)


def a_world() -> World:
    """One whose handlers cover every way out."""
    world = World(
        retry={"initial_backoff": "10s", "max_attempts": 2},
        execution={"lease": "6s", "handler_timeout": "10m"},
    )

    def slow(_order: str, ctx: TaskContext) -> None:
        for _ in range(3):
            world.clock.advance("2s")
            ctx.wait(0.02)

    def fails(_order: str) -> None:
        raise ConnectionError

    def dies(_order: str) -> None:
        raise Abort("no")

    world.handler(slow, "slow")
    world.handler(fails, "fails")
    world.handler(dies, "dies")
    return world


def stays_cancelled(world: World, task_id: str) -> None:
    """Neither sweeps, now or much later, nor redrive and purge bring it back or take it away."""
    before = world.task(task_id)
    assert before.status is Status.CANCELLED
    for _ in range(4):
        world.sweep()
        world.clock.advance("1h")
    assert world.store.dead_entry(task_id) is None
    with pytest.raises(TaskConflict, match="CANCELLED"):
        world.store.cancel(task_id, now=world.clock.now(), op_id="again", expires_at=None)
    assert world.task(task_id) == before


@pytest.mark.parametrize(
    ("verb", "ref"),
    [
        ("claim", "slow"),
        ("load", "slow"),
        ("heartbeat", "slow"),
        ("complete", "slow"),
        ("reschedule", "fails"),
        ("dead_letter", "dies"),
    ],
)
def test_a_cancel_just_before_a_write_wins(
    verb: str, ref: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world()
    cancels = Cancels(world, verb, after=False, monkeypatch=monkeypatch)
    cancels.task_id = world.submit(ref=ref)
    world.sweep()
    assert cancels.refusals == []
    assert ENDS.isdisjoint(world.told.names())
    stays_cancelled(world, cancels.task_id)


@pytest.mark.parametrize(
    ("verb", "ref", "status"),
    [("complete", "slow", Status.SUCCEEDED), ("dead_letter", "dies", Status.DEAD)],
)
def test_a_cancel_after_the_end_loses_and_names_the_state(
    verb: str, ref: str, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world()
    cancels = Cancels(world, verb, after=True, monkeypatch=monkeypatch)
    cancels.task_id = world.submit(ref=ref)
    world.sweep()
    assert [str(status) in refused.message for refused in cancels.refusals] == [True]
    assert world.task(cancels.task_id).status is status


@pytest.mark.parametrize(
    ("verb", "ref"), [("claim", "slow"), ("heartbeat", "slow"), ("reschedule", "fails")]
)
def test_a_cancel_just_after_a_write_that_ends_nothing_wins(
    verb: str, ref: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world()
    cancels = Cancels(world, verb, after=True, monkeypatch=monkeypatch)
    cancels.task_id = world.submit(ref=ref)
    world.sweep()
    assert EventName.SUCCEEDED not in world.told.names()
    stays_cancelled(world, cancels.task_id)


@pytest.mark.parametrize("after", [False, True])
def test_a_cancel_around_a_release_wins(*, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world, stop = a_world(), Stop()

    def heeds(_order: str, ctx: TaskContext) -> None:
        stop.request()
        ctx.wait(10)

    world.handler(heeds, "heeds")
    cancels = Cancels(world, "release", after=after, monkeypatch=monkeypatch)
    cancels.task_id = world.submit(ref="heeds")
    world.sweep(stop=stop)
    stays_cancelled(world, cancels.task_id)


@pytest.mark.parametrize(("verb", "lapses"), [("reclaim", 1), ("dead_letter_lapsed", 2)])
def test_a_cancel_just_before_a_lapsed_lease_is_dealt_with_wins(
    verb: str, lapses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world()
    world.configure(index_shards=1, retry={"max_attempts": 3 - lapses}, execution={"lease": "6s"})
    cancels = Cancels(world, verb, after=False, monkeypatch=monkeypatch)
    cancels.task_id = world.submit(ref="slow")
    claimed_by_nobody_alive(world, cancels.task_id)
    world.clock.advance("61s")
    world.sweep()
    assert (cancels.refusals, world.attempts(cancels.task_id)) == ([], [])
    stays_cancelled(world, cancels.task_id)


def test_a_task_that_is_cancelled_in_the_queue_never_runs() -> None:
    world, ran = a_world(), []
    world.handler(lambda _order: ran.append(1), "notes")
    task_id = world.submit(ref="notes", delay="10s")
    world.store.cancel(task_id, now=world.clock.now(), op_id="op", expires_at=None)
    world.clock.advance("1m")
    assert (world.sweep().claimed, ran) == (0, [])
    stays_cancelled(world, task_id)


def test_a_redrive_and_a_purge_that_saw_the_task_dead_find_it_cancelled_since() -> None:
    world = a_world()
    task_id = world.submit(ref="dies")
    world.sweep()
    entry = world.store.dead_entry(task_id)
    assert entry is not None
    redriver = world.parts.redriver()
    redriver.redrive(entry, op_id="first")
    world.store.cancel(task_id, now=world.clock.now(), op_id="op", expires_at=None)
    for late in (
        lambda: redriver.redrive(entry, op_id="late"),
        lambda: redriver.purge(entry, op_id="late"),
    ):
        with pytest.raises(TaskConflict):
            late()
    stays_cancelled(world, task_id)


def cancelled_as_it_completes() -> tuple[bool, bool, Status]:
    """Whether the cancel won, whether the completion did, and the state that came of it."""
    world, together, won = World(), threading.Barrier(2), threading.Event()

    def handler(_order: str) -> None:
        together.wait(10)

    def cancel() -> None:
        together.wait(10)
        with contextlib.suppress(TaskConflict):
            world.store.cancel(task_id, now=world.clock.now(), op_id="op", expires_at=None)
            won.set()

    world.handler(handler)
    task_id = world.submit()
    thread = threading.Thread(target=cancel)
    thread.start()
    report = world.sweep()
    thread.join(10)
    return won.is_set(), report.completed == 1, world.task(task_id).status


def test_of_a_cancel_and_a_completion_at_once_one_wins() -> None:
    for _ in range(50):
        cancelled, completed, status = cancelled_as_it_completes()
        assert cancelled is not completed
        assert status is (Status.CANCELLED if cancelled else Status.SUCCEEDED)
