"""The long-running worker: how it sleeps, wakes and drains, on a store that counts its reads."""

from datetime import timedelta

from rdq_core import Status
from rdq_core.domain.lease import Claim, Grant
from rdq_core.engine.events import EventName
from rdq_core.engine.ports import Candidate
from rdq_core.engine.sweep import SweepLimits
from rdq_core.runtime.worker import Worker
from tests.engine.test_admission import count_reads
from tests.engine.world import World, raises, sleeps_until


def serve_for(world: World, seconds: float) -> None:
    """What a worker does in that time."""
    world.sweep(SweepLimits(horizon=None, deadline=world.clock.now() + timedelta(seconds=seconds)))


def test_an_idle_worker_polls_at_its_interval() -> None:
    world = World(dispatch={"poll_interval": "5s"}, index_shards=3)
    reads = count_reads(world)
    serve_for(world, 60)
    assert len(reads) == 3 * 12


def test_a_worker_sees_new_work_at_its_next_poll() -> None:
    world = World(dispatch={"poll_interval": "5s"})
    world.handler(lambda _order: None)
    sleeps_until(world, timedelta(seconds=12), lambda _seconds: world.submit())
    serve_for(world, 30)
    assert world.told.last(EventName.CLAIMED).lateness_ms == 3_000


def test_a_worker_wakes_for_the_next_due_time_that_it_knows() -> None:
    world = World(dispatch={"poll_interval": "10s"})
    world.handler(lambda _order: None)
    world.submit(delay="7300ms")
    reads = count_reads(world)
    serve_for(world, 9)
    assert world.told.last(EventName.CLAIMED).lateness_ms == 0
    assert len(reads) <= 3


def test_each_claim_event_has_its_lateness() -> None:
    world = World(retry={"initial_backoff": "10s", "jitter": 0.0})
    failures = [ConnectionError()]
    world.handler(lambda _order: raises(failures.pop())("") if failures else None)
    world.submit(delay="5s")
    world.clock.advance("5250ms")
    world.sweep()
    world.clock.advance("12s")
    world.sweep()
    claims = [event for event in world.told.events if event.name is EventName.CLAIMED]
    assert [event.lateness_ms for event in claims] == [250, 2_000]


def test_each_claim_event_has_the_time_that_storage_took() -> None:
    world = World()
    world.handler(lambda _order: None)
    world.submit()
    claim = world.store.claim

    def slow(candidate: Candidate, grant: Grant) -> Claim | None:
        world.clock.advance("40ms")
        return claim(candidate, grant)

    world.store.claim = slow  # type: ignore[method-assign]
    world.sweep()
    assert world.told.last(EventName.CLAIMED).claim_latency_ms == 40


def test_draining_ends_when_nothing_is_due_within_the_horizon() -> None:
    world = World()
    world.handler(lambda _order: None)
    inside, outside = world.submit(delay="50m"), world.submit(delay="3h")
    start = world.clock.now()
    assert Worker(world.parts, world.registry).drain(timedelta(hours=1)).total.completed == 1
    assert world.task(inside).status is Status.SUCCEEDED
    assert world.task(outside).status is Status.PENDING
    assert world.clock.now() - start < timedelta(minutes=51)


def test_draining_waits_for_retries_within_its_horizon() -> None:
    world = World(
        retry={"initial_backoff": "20m", "max_backoff": "20m", "jitter": 0.0, "max_attempts": 3}
    )
    world.handler(raises(ConnectionError()))
    task_id = world.submit()
    assert Worker(world.parts, world.registry).drain(timedelta(minutes=30)).total.dead_lettered == 1
    assert len(world.attempts(task_id)) == 3


def test_draining_ends_only_when_two_readings_agree() -> None:
    world = World()
    world.handler(lambda _order: None)
    sleeps_until(world, timedelta(seconds=1), lambda _seconds: world.submit())
    assert Worker(world.parts, world.registry).drain(timedelta(seconds=1)).total.completed == 1


def test_an_empty_queue_is_drained_after_two_readings() -> None:
    world = World()
    reads = count_reads(world)
    start = world.clock.now()
    assert Worker(world.parts, world.registry).drain().total.claimed == 0
    assert 2 <= len(reads) <= 3
    assert world.clock.now() - start <= timedelta(seconds=3)


def test_a_paused_queue_keeps_no_worker_from_draining_the_others() -> None:
    world = World()
    world.configure("paused", index_shards=1)
    world.handler(lambda _order: None)
    world.submit()
    left = world.submit(queue="paused")
    world.queues.pause("paused", paused=True, now=world.clock.now())
    assert (
        Worker(world.parts, world.registry, serves=["paused", "billing"]).drain().total.completed
        == 1
    )
    assert world.task(left).status is Status.PENDING
