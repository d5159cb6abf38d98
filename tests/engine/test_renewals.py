"""Sweeps renew the bodies of overdue tasks, queue by queue, a few pages at a time, once a day."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.engine.ports import Candidate
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import CorruptItem, StoreFailed
from tests.engine.world import NOW_ONLY, QUEUE, World


class Renewed:
    """The tasks whose bodies the store was asked to renew, which may fail."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ids: list[str] = []
        self.fails: Callable[[str], Exception | None] = lambda _: None
        monkeypatch.setattr(world.store, "renew", self._renew)

    def _renew(self, candidate: Candidate, **_: Any) -> None:
        error = self.fails(candidate.task_id)
        if error is not None:
            raise error
        self.ids.append(candidate.task_id)


def paused(world: World, queue: str = QUEUE) -> None:
    world.queues.pause(queue, paused=True, now=world.clock.now())


def later(world: World, span: str, sweeps: int = 5) -> None:
    world.clock.advance(span)
    for _ in range(sweeps):
        world.sweep(NOW_ONLY)
        world.clock.advance("1s")


@pytest.fixture
def world() -> World:
    return World(index_shards=3)


def test_work_of_a_paused_queue_is_renewed_once_it_is_long_overdue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(world, monkeypatch)
    paused(world)
    ids = {world.submit() for _ in range(10)}
    later(world, "19d")
    assert renewed.ids == []
    later(world, "2d")
    assert set(renewed.ids) == ids


def test_each_task_is_looked_after_once_a_day_however_often_the_queue_is_swept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(world, monkeypatch)
    paused(world)
    task_id = world.submit()
    later(world, "30d", sweeps=20)
    assert renewed.ids == [task_id]
    later(world, "25h", sweeps=20)
    assert renewed.ids == [task_id] * 2


def test_work_that_another_kind_of_host_serves_is_renewed_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(world, monkeypatch)
    world.configure("elsewhere", dispatch={"host": "sweeper"})
    task_id = world.submit(queue="elsewhere")
    later(world, "30d")
    assert renewed.ids == [task_id]


def test_a_large_backlog_is_renewed_over_several_cycles_and_keeps_no_claim_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(world, monkeypatch)
    world.configure("paused")
    paused(world, "paused")
    ids = {world.submit(queue="paused") for _ in range(130)}
    world.handler(lambda _order: None)
    world.clock.advance("30d")
    world.submit()
    assert world.sweep(NOW_ONLY).completed == 1
    assert 0 < len(renewed.ids) <= 60
    later(world, "1s", sweeps=12)
    assert (set(renewed.ids), len(renewed.ids)) == (ids, 130)


def test_a_queue_whose_work_is_done_in_time_costs_nothing_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(world, monkeypatch)
    reads: list[object] = []
    candidates = world.store.candidates

    def counted(*arguments: Any, **options: Any) -> Any:
        reads.append(options["until"])
        return candidates(*arguments, **options)

    monkeypatch.setattr(world.store, "candidates", counted)
    world.handler(lambda _order: None)
    for _ in range(5):
        world.submit()
        later(world, "10d", sweeps=2)
    assert renewed.ids == []
    assert len(reads) == 5 * 2 * 3  # each of the three shards once a sweep


def test_work_behind_a_backlog_of_weeks_is_renewed_while_it_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(world, monkeypatch)
    world.handler(lambda _order: None)
    ids = {world.submit() for _ in range(30)}
    world.clock.advance("25d")
    world.sweep(SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=2))
    assert set(renewed.ids) <= ids
    assert len(renewed.ids) >= 20


def test_what_cannot_be_renewed_is_reported_and_stops_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(world, monkeypatch)
    paused(world)
    damaged, unlucky, *others = [world.submit() for _ in range(6)]
    failures = {
        damaged: CorruptItem("unreadable", task_id=damaged),
        unlucky: StoreFailed("x", may_have_happened=False),
    }
    renewed.fails = failures.get
    later(world, "30d")
    assert sorted(renewed.ids) == sorted(others)
    told = {where for where, _ in world.told.errors}
    assert told == {f"renewing the body of task {task_id}" for task_id in (damaged, unlucky)}


def test_a_shard_that_cannot_be_read_is_reported_and_looked_at_the_next_day(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = Renewed(world, monkeypatch)
    paused(world)
    ids = {world.submit() for _ in range(12)}
    candidates = world.store.candidates

    def throttled(queue: str, shard: int, **options: Any) -> Any:
        if shard == 1:
            raise StoreFailed("throttled", may_have_happened=False)
        return candidates(queue, shard, **options)

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "candidates", throttled)
        later(world, "30d")
    assert 0 < len(renewed.ids) < 12
    later(world, "1d")
    assert set(renewed.ids) == ids
