"""How a sweep keeps a rate limit: when tokens are fetched, kept, and when they expire."""

import threading
from dataclasses import replace
from datetime import datetime, timedelta

from rdq_core.config.settings import RateLimit
from rdq_core.engine.sweep import SweepLimits
from tests.engine.test_admission import OneBucket, a_limited_world
from tests.engine.world import NOW_ONLY, QUEUE, sleeps_until


class Noting(OneBucket):
    """Notes how many tokens each request wants."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[int] = []

    def take(self, queue: str, wanted: int, limit: RateLimit, *, now: datetime) -> int:
        self.wanted.append(wanted)
        return super().take(queue, wanted, limit, now=now)


def test_no_token_is_taken_for_followers_of_a_key() -> None:
    world, _ = a_limited_world()
    bucket = Noting()
    world.parts = replace(world.parts, limiter=bucket)
    for number in range(6):
        world.submit(concurrency_key="ann" if number else "bob")
    world.sweep(SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=1))
    assert bucket.wanted == [2]


def test_unused_tokens_do_not_add_up_with_a_later_burst() -> None:
    world, _ = a_limited_world("8/s")
    ran: list[str] = []
    gate = threading.Event()

    def handler(order: str) -> None:
        ran.append(order)
        if order == "outdated":
            gate.wait(0.01)

    world.handler(handler, "note")
    tasks = [world.submit(f"outdated {number}", ref="note") for number in range(8)]
    page = world.store.candidates(QUEUE, 0, until=world.clock.now(), limit=100)
    for task_id in tasks:
        world.store.cancel(task_id, now=world.clock.now(), op_id="op", expires_at=None)
    stale, candidates = [page], world.store.candidates
    world.store.candidates = (  # type: ignore[method-assign]
        lambda *arguments, **options: stale.pop() if stale else candidates(*arguments, **options)
    )

    def late_work(_seconds: float) -> None:
        for number in range(30):
            world.submit(f"late {number}", ref="note")

    sleeps_until(world, timedelta(seconds=5), late_work)
    report = world.sweep(
        SweepLimits(horizon=None, deadline=world.clock.now() + timedelta(seconds=6))
    )
    assert report.contended == 8
    assert len(ran) <= 8 + 8  # the bucket's burst at the fifth second, and its rate until the sixth


def test_a_limit_that_comes_later_finds_no_tokens_from_before() -> None:
    world, bucket = a_limited_world("8/s")
    world.configure(index_shards=1, dispatch={"concurrency": 8})
    for number in range(8):
        world.submit(f"order {number}")
    page = world.store.candidates(QUEUE, 0, until=world.clock.now(), limit=100)
    assert world.sweep().completed == 8
    stale, candidates = [page], world.store.candidates
    world.store.candidates = (  # type: ignore[method-assign]
        lambda *arguments, **options: stale.pop() if stale else candidates(*arguments, **options)
    )

    def limited(_seconds: float) -> None:
        world.configure(index_shards=1, dispatch={"concurrency": 8, "rate_limit": "1/m"})
        for number in range(20):
            world.submit(f"late {number}")

    sleeps_until(world, timedelta(seconds=2), limited)
    report = world.sweep(
        SweepLimits(horizon=None, deadline=world.clock.now() + timedelta(seconds=5))
    )
    assert world.told.errors == []
    assert (report.contended, report.completed, bucket.requests > 0) == (8, 1, True)


def test_a_small_bucket_is_asked_as_often_as_it_fills() -> None:
    world, _ = a_limited_world("10/s", burst=1, poll_interval="1s")
    for _ in range(20):
        world.submit()
    start = world.clock.now()
    assert world.sweep(SweepLimits()).completed == 20
    assert world.clock.now() - start < timedelta(seconds=6)


def test_a_sweep_waits_within_its_horizon_for_tokens_that_come_slowly() -> None:
    world, _ = a_limited_world("12/m")
    for _ in range(4):
        world.submit()
    assert world.sweep(SweepLimits()).completed == 4


def test_a_draining_worker_does_not_leave_what_waits_for_a_token() -> None:
    world, _ = a_limited_world("1/m")
    for _ in range(4):
        world.submit()
    assert world.sweep(SweepLimits(horizon=timedelta(hours=1))).completed == 4


def test_a_sweep_over_this_moment_only_waits_for_no_token() -> None:
    world, _ = a_limited_world("1/m")
    for _ in range(4):
        world.submit()
    assert world.sweep(NOW_ONLY).completed == 1
