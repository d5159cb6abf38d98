"""The heartbeat: no handler can block it, it ends with its run, and a late one is harmless."""

import asyncio
import threading
import time
from datetime import datetime, timedelta

import pytest

from rdq_core import Outcome, Status, TaskContext
from rdq_core.domain.lease import Claim
from rdq_core.engine.events import EventName
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import LeaseLost, StoreFailed
from rdq_core.runtime.sweepers import build_sweeper
from tests.engine.world import NOW_ONLY, QUEUE, World, until

LONG = {"lease": "6s", "handler_timeout": "10m"}


def count_beats(world: World) -> list[int]:
    """A list that grows with each heartbeat that has reached the store."""
    beats: list[int] = []
    heartbeat = world.store.heartbeat

    def counted(claim: Claim, lease_expires_at: datetime) -> None:
        heartbeat(claim, lease_expires_at)
        beats.append(1)

    world.store.heartbeat = counted  # type: ignore[method-assign]
    return beats


def spin_until_next(beats: list[int]) -> None:
    """Nothing but Python bytecode, holding the interpreter's lock whenever it is not taken away."""
    seen, give_up = len(beats), time.monotonic() + 20
    while len(beats) == seen:
        assert time.monotonic() < give_up


def test_a_busy_loop_keeps_its_lease() -> None:
    world = World(execution=LONG)
    beats = count_beats(world)

    def handler(_order: str) -> None:
        for _ in range(10):
            world.clock.advance("2s")
            spin_until_next(beats)

    world.handler(handler)
    task_id = world.submit()
    assert world.sweep().completed == 1
    assert [attempt.outcome for attempt in world.attempts(task_id)] == [Outcome.SUCCESS]


def test_sleeping_in_async_code_keeps_its_lease() -> None:
    world = World(execution=LONG)
    beats = count_beats(world)

    async def handler(_order: str) -> None:
        for _ in range(10):
            seen = len(beats)
            world.clock.advance("2s")
            while len(beats) == seen:
                time.sleep(0.001)  # noqa: ASYNC251 - that is what is tried: the loop stands still
        await asyncio.sleep(0)

    world.handler(handler)
    task_id = world.submit()
    assert world.sweep().completed == 1
    assert [attempt.outcome for attempt in world.attempts(task_id)] == [Outcome.SUCCESS]


def test_no_other_host_can_take_a_task_whose_handler_blocks_for_many_leases() -> None:
    world, starts = World(execution=LONG), []
    beats = count_beats(world)
    other = build_sweeper(world.parts, world.registry, serves=[QUEUE], worker="other:1")

    def handler(_order: str) -> None:
        starts.append(1)
        for _ in range(10):
            seen = len(beats)
            world.clock.advance("2s")
            until(lambda seen=seen: len(beats) > seen)  # type: ignore[misc]
            assert other.sweep(NOW_ONLY).total.claimed == 0

    world.handler(handler)
    world.submit()
    assert world.sweep().completed == 1
    assert starts == [1]


@pytest.mark.parametrize("second_is_done", [True, False])
def test_a_heartbeat_that_was_frozen_and_comes_later_does_nothing(
    *, second_is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(execution=LONG)
    heartbeat, frozen, thawed, after = world.store.heartbeat, [True], [], []
    gate, second_runs, heard = threading.Event(), threading.Event(), []
    other = build_sweeper(world.parts, world.registry, serves=[QUEUE], worker="other:1")
    second = threading.Thread(target=lambda: other.sweep(NOW_ONLY))

    def handler(_order: str, ctx: TaskContext) -> str:
        if ctx.attempt_no == 1:
            world.clock.advance("2s")
            heard.append(ctx.wait(20))
            return "first"
        second_runs.set()
        if not second_is_done:
            gate.wait(20)
        return "second"

    def freezes(claim: Claim, lease_expires_at: datetime) -> None:
        if not frozen:
            heartbeat(claim, lease_expires_at)
            return
        frozen.clear()
        world.clock.advance("6s")
        second.start()
        assert second_runs.wait(10)
        if second_is_done:
            second.join(10)
        before = world.task(claim.task.id)
        try:
            heartbeat(claim, lease_expires_at)
        finally:
            thawed.append(before)
            after.append(world.task(claim.task.id))

    monkeypatch.setattr(world.store, "heartbeat", freezes)
    world.handler(handler)
    task_id = world.submit()
    report = world.sweep(SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=1))
    gate.set()
    second.join(10)
    assert thawed == after
    until(lambda: heard == [True])
    assert (report.lost, report.completed) == (1, 0)
    assert world.task(task_id).result == b"second"
    assert [attempt.outcome for attempt in world.attempts(task_id)] == [
        Outcome.LEASE_EXPIRED,
        Outcome.SUCCESS,
    ]


def test_runner_threads_end_with_their_run() -> None:
    world = World(execution=LONG)
    beats = count_beats(world)

    def handler(_order: str) -> None:
        world.clock.advance("2s")
        until(lambda: len(beats) == 1)

    world.handler(handler)
    task_id = world.submit()
    world.sweep()
    until(lambda: not [thread for thread in threading.enumerate() if task_id in thread.name])
    world.clock.advance("10m")
    assert len(beats) == 1


def test_a_heartbeat_that_storage_refuses_is_reported_and_tried_again() -> None:
    world = World(execution=LONG)
    heartbeat, failures, beats = (
        world.store.heartbeat,
        [StoreFailed("throttled", may_have_happened=False)],
        [],
    )

    def flaky(claim: Claim, lease_expires_at: datetime) -> None:
        beats.append(1)
        if failures:
            raise failures.pop()
        heartbeat(claim, lease_expires_at)

    world.store.heartbeat = flaky  # type: ignore[method-assign]

    def handler(_order: str) -> None:
        for seen in (0, 1):
            world.clock.advance("2s")
            until(lambda seen=seen: len(beats) > seen)  # type: ignore[misc]

    world.handler(handler)
    task_id = world.submit()
    assert world.sweep().completed == 1
    assert [where for where, _ in world.told.errors] == [f"heartbeat of task {task_id}"]


def test_without_a_heartbeat_the_handler_may_send_its_own() -> None:
    world = World(execution={"lease": "60s", "handler_timeout": "50s", "heartbeat": "off"})

    def handler(_order: str, ctx: TaskContext) -> None:
        world.clock.advance("40s")
        ctx.heartbeat()

    world.handler(handler)
    task_id = world.submit()
    before = world.clock.now()
    leases = []
    heartbeat = world.store.heartbeat

    def noted(claim: Claim, lease_expires_at: datetime) -> None:
        leases.append(lease_expires_at - before)
        heartbeat(claim, lease_expires_at)

    world.store.heartbeat = noted  # type: ignore[method-assign]
    assert world.sweep().completed == 1
    assert leases == [timedelta(seconds=100)]
    assert world.task(task_id).status is Status.SUCCEEDED


def test_a_handler_s_own_heartbeat_raises_when_the_lease_is_lost() -> None:
    world, heard = (
        World(execution={"lease": "60s", "handler_timeout": "50s", "heartbeat": "off"}),
        [],
    )

    def handler(_order: str, ctx: TaskContext) -> None:
        world.store.cancel(ctx.task.id, now=world.clock.now(), op_id="op", expires_at=None)
        for verb in (ctx.heartbeat, ctx.check_lease, ctx.heartbeat):
            with pytest.raises(LeaseLost):
                verb()
        heard.append(ctx.cancelled)

    world.handler(handler)
    world.submit()
    assert world.sweep().lost == 1
    assert heard == [True]
    assert world.told.names()[-1] is EventName.LOST
