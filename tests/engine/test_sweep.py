import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from rdq_core import Outcome, Status
from rdq_core.config.settings import QueueSettings
from rdq_core.domain.lease import Grant
from rdq_core.engine.events import EventName
from rdq_core.engine.stopping import Stop
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import CorruptItem, StoreFailed
from rdq_core.runtime.sweepers import build_sweeper
from tests.engine.world import NOW_ONLY, QUEUE, World, raises


def claimed_by_nobody_alive(world: World, task_id: str) -> None:
    """A claim whose worker dies at once."""
    now = world.clock.now()
    page = world.store.candidates(QUEUE, 0, until=now, limit=100)
    candidate = next(candidate for candidate in page.items if candidate.task_id == task_id)
    grant = Grant(token="dead worker's", now=now, lease_expires_at=now + timedelta(seconds=60))
    assert world.store.claim(candidate, grant) is not None


def test_a_lapsed_lease_is_taken_over_and_counts_as_an_attempt() -> None:
    world = World()
    world.handler(lambda _order: None)
    task_id = world.submit()
    claimed_by_nobody_alive(world, task_id)
    assert world.sweep().claimed == 0
    world.clock.advance("60s")
    assert world.sweep().completed == 1
    lapsed, success = world.attempts(task_id)
    assert (lapsed.outcome, lapsed.finished_at, lapsed.error and lapsed.error.type) == (
        Outcome.LEASE_EXPIRED,
        None,
        "rdq.LeaseExpired",
    )
    assert (success.attempt_no, success.fencing_token) == (2, (lapsed.fencing_token or 0) + 1)


def test_a_handler_that_kills_its_worker_each_time_ends_in_the_dlq() -> None:
    world = World(retry={"max_attempts": 3})
    world.handler(lambda _order: None)
    task_id = world.submit()
    claimed_by_nobody_alive(world, task_id)
    claimer = world.claimer()
    for _ in range(2):
        world.clock.advance("61s")
        candidate = world.store.candidates(QUEUE, 0, until=world.clock.now(), limit=1).items[0]
        claimer.take(candidate, world.queues.settings(QUEUE))
    world.clock.advance("61s")
    report = world.sweep()
    task = world.task(task_id)
    assert task.failure is not None
    assert (report.dead_lettered, report.claimed) == (1, 0)
    assert (task.status, task.failure.code) == (Status.DEAD, "task_lease_expired")
    assert [attempt.outcome for attempt in task.attempts] == [Outcome.LEASE_EXPIRED] * 3
    assert world.told.last(EventName.DEAD_LETTERED).rule == "lease"


def test_no_more_is_claimed_than_there_are_slots() -> None:
    world = World(dispatch={"concurrency": 3})
    running, most, lock = [0], [0], threading.Lock()

    def handler(_order: str) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.002)
        with lock:
            running[0] -= 1

    world.handler(handler)
    for _ in range(40):
        world.submit()
    assert world.sweep().completed == 40
    assert most[0] == 3


def test_a_queue_with_a_large_backlog_does_not_keep_another_waiting() -> None:
    world = World(dispatch={"concurrency": 2, "batch_size": 10})
    world.configure("small", index_shards=1)
    started: list[str] = []
    world.handler(lambda order, ctx: started.append(ctx.task.queue) if order else None)
    for _ in range(500):
        world.submit()
    world.submit(queue="small")
    assert (
        world.sweep(SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=20)).claimed
        <= 20
    )
    assert "small" in started


def test_due_work_is_taken_oldest_first() -> None:
    world = World(dispatch={"concurrency": 1})
    order: list[str] = []

    def handler(name: str) -> None:
        order.append(name)

    world.handler(handler)
    for name in ("first", "second", "third"):
        world.submit(name)
        world.clock.advance("1s")
    world.sweep()
    assert order == ["first", "second", "third"]


def test_every_shard_is_visited() -> None:
    world = World(index_shards=7)
    world.handler(lambda _order: None)
    for _ in range(50):
        world.submit()
    assert world.sweep().completed == 50


def test_a_paused_queue_is_left_alone_and_does_not_keep_the_sweep() -> None:
    world = World()
    world.handler(lambda _order: None)
    task_id = world.submit()
    world.queues.pause(QUEUE, paused=True, now=world.clock.now())
    assert world.sweep(SweepLimits()).claimed == 0
    world.queues.pause(QUEUE, paused=False, now=world.clock.now())
    assert world.sweep().completed == 1
    assert world.task(task_id).status is Status.SUCCEEDED


def test_a_configuration_change_reaches_queued_work_at_the_next_claim() -> None:
    world = World(retry={"max_attempts": 5})
    world.handler(raises(ConnectionError()))
    tasks = [world.submit() for _ in range(10)]
    world.configure(index_shards=1, retry={"max_attempts": 1})
    assert world.sweep().dead_lettered == 10
    assert {world.task(task_id).status for task_id in tasks} == {Status.DEAD}


def test_a_sweep_sleeps_to_due_times_within_its_horizon_and_returns_when_there_are_none() -> None:
    world = World(retry={"initial_backoff": "40s", "jitter": 0.0, "max_attempts": 2})
    failures = [ConnectionError()]
    world.handler(lambda _order: raises(failures.pop())("") if failures else None)
    start = world.clock.now()
    world.submit()
    report = world.sweep(SweepLimits())
    assert (report.rescheduled, report.completed) == (1, 1)
    assert timedelta(seconds=40) <= world.clock.now() - start < timedelta(seconds=45)


def test_work_due_beyond_the_horizon_is_left_to_a_later_sweep() -> None:
    world = World()
    world.handler(lambda _order: None)
    world.submit(delay="10m")
    start = world.clock.now()
    assert world.sweep(SweepLimits()).claimed == 0
    assert world.clock.now() - start < timedelta(seconds=5)


class SleepsForHours:
    """What looks to a worker like a machine that is seldom awake; it keeps a test of days short."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        self._world.clock.advance("1h")
        return wake.is_set()


def test_a_worker_that_was_idle_for_days_still_sees_what_comes() -> None:
    world = World()
    world.parts = replace(world.parts, idle=SleepsForHours(world))
    world.handler(lambda _order: None)
    world.submit(run_at=world.clock.now() + timedelta(days=3))
    assert (
        world.sweep(
            SweepLimits(horizon=None, deadline=world.clock.now() + timedelta(days=4))
        ).completed
        == 1
    )


def test_nothing_is_claimed_after_the_deadline() -> None:
    world = World()
    world.handler(lambda _order: None)
    world.submit()
    assert world.sweep(SweepLimits(deadline=world.clock.now())).claimed == 0


def test_nothing_is_claimed_after_a_stop() -> None:
    world = World()
    world.handler(lambda _order: None)
    world.submit()
    stop = Stop()
    stop.request()
    assert world.sweep(stop=stop).claimed == 0


def test_a_candidate_that_another_host_took_is_counted_and_costs_no_attempt() -> None:
    world = World()
    world.handler(lambda _order: None)
    task_id = world.submit()
    candidates = world.store.candidates
    page = candidates(QUEUE, 0, until=world.clock.now(), limit=10)
    world.sweep()
    world.store.candidates = lambda *_args, **_options: page  # type: ignore[method-assign]
    world.clock.advance("5s")
    assert world.sweep().contended == 1
    assert len(world.attempts(task_id)) == 1


def test_a_row_that_cannot_be_read_is_reported_and_stops_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.handler(lambda _order: None)
    bad, good = world.submit(), world.submit()
    claim = world.store.claim

    def unreadable(candidate: object, grant: object) -> object:
        if getattr(candidate, "task_id", "") == bad:
            raise CorruptItem("unreadable", task_id=bad)
        return claim(candidate, grant)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store, "claim", unreadable)
    report = world.sweep()
    assert (report.completed, report.deferred) == (1, 1)
    assert world.task(good).status is Status.SUCCEEDED
    assert world.told.errors[0][0] == f"claiming task {bad}"


def test_one_shard_that_cannot_be_read_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(index_shards=3)
    world.handler(lambda _order: None)
    for _ in range(30):
        world.submit()
    candidates = world.store.candidates

    def throttled(queue: str, shard: int, **options: object) -> object:
        if shard == 1:
            raise StoreFailed("throttled", may_have_happened=False)
        return candidates(queue, shard, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store, "candidates", throttled)
    done = world.sweep().completed
    assert 0 < done < 30
    monkeypatch.undo()
    world.clock.advance("2s")
    assert world.sweep().completed == 30 - done


def test_a_queue_that_is_not_configured_is_reported_and_stops_nothing_else() -> None:
    world = World()
    world.handler(lambda _order: None)
    world.submit()
    sweeper = build_sweeper(world.parts, world.registry, serves=("ghost", QUEUE), worker="host:1")
    assert sweeper.sweep(NOW_ONLY).total.completed == 1
    assert world.told.errors[0][0] == "configuration of queue ghost"


def test_two_sweeps_at_once_run_each_task_once() -> None:
    world = World(dispatch={"concurrency": 4})
    ran: list[str] = []

    def handler(name: str) -> None:
        ran.append(name)

    world.handler(handler)
    for number in range(100):
        world.submit(f"order {number}")
    threads = [
        threading.Thread(
            target=build_sweeper(
                world.parts, world.registry, serves=[QUEUE], worker=f"host:{n}"
            ).sweep,
            args=(NOW_ONLY,),
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(ran) == sorted(f"order {number}" for number in range(100))


def test_a_report_has_the_numbers_of_each_queue() -> None:
    world = World()
    world.configure("mail", index_shards=1)
    world.handler(lambda _order: None)
    world.submit()
    world.submit(queue="mail")
    report = world.sweeper.sweep(NOW_ONLY)
    assert {queue: counts.completed for queue, counts in report.queues.items()} == {
        QUEUE: 1,
        "mail": 1,
    }


class NeverDone:
    """Work besides of which there is always more at once."""

    def __init__(self, world: World) -> None:
        self.clock = world.clock
        self.slices = 0

    def step(self, *, until: datetime) -> datetime:
        self.slices += 1
        return self.clock.now()


def test_background_work_gets_a_slice_each_second_and_never_spins() -> None:
    world = World()
    background_work, looks, settings = NeverDone(world), [], world.queues.settings

    def counted(queue: str, **options: Any) -> QueueSettings:
        looks.append(queue)
        if len(looks) > 100:
            pytest.fail("it spins")
        return settings(queue, **options)

    world.queues.settings = counted  # type: ignore[method-assign]
    world.sweeper._parts = replace(world.sweeper._parts, background_work=background_work)
    world.sweep(SweepLimits(horizon=None, deadline=world.clock.now() + timedelta(seconds=5)))
    assert background_work.slices == 5
