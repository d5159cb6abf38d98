import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from rdq_core import Status
from rdq_core.config.settings import Host, QueueSettings, RateLimit
from rdq_core.domain.rate import take
from rdq_core.engine.admission import Admission, NoLimit
from rdq_core.engine.due_reader import DueReader
from rdq_core.engine.ports import Candidate, Page
from rdq_core.engine.reconcile import Reconciler
from rdq_core.engine.stopping import Stop
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import StoreFailed
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.testing.clock import FrozenClock, NoJitter
from tests.engine.world import NOW_ONLY, QUEUE, World
from tests.support.processes import HANGS


class OneBucket:
    """A rate limiter that all sweepers of a test share, and that counts its requests."""

    def __init__(self) -> None:
        self.moment = 0
        self.requests = 0
        self._lock = threading.Lock()

    def take(self, queue: str, wanted: int, limit: RateLimit, *, now: datetime) -> int:
        with self._lock:
            self.requests += 1
            taken = take(
                self.moment,
                int(now.timestamp() * 1_000_000),
                wanted,
                interval=limit.period / limit.count,
                burst=limit.burst,
            )
            self.moment = taken.moment
            return taken.granted


def a_limited_world(rate: str = "10/s", **dispatch: object) -> tuple[World, OneBucket]:
    world, bucket = World(dispatch={"rate_limit": rate, "concurrency": 8, **dispatch}), OneBucket()
    world.parts = replace(world.parts, limiter=bucket)
    world.handler(lambda _order: None)
    return world, bucket


def test_a_rate_limit_lets_one_burst_start_and_then_its_rate() -> None:
    world, _ = a_limited_world()
    for _ in range(30):
        world.submit()
    assert world.sweep().completed == 10
    world.clock.advance("1s")
    assert world.sweep().completed == 10


def test_several_sweepers_share_one_limit() -> None:
    world, _ = a_limited_world()
    for _ in range(100):
        world.submit()
    sweepers = [
        build_sweeper(world.parts, world.registry, serves=[QUEUE], worker=f"host:{n}")
        for n in range(4)
    ]
    done = 0
    for _ in range(5):
        done += sum(sweeper.sweep(NOW_ONLY).total.completed for sweeper in sweepers)
        world.clock.advance("1s")
    assert done == 10 * 5


def test_a_limited_queue_without_due_work_asks_for_no_token() -> None:
    world, bucket = a_limited_world()
    world.sweep(SweepLimits())
    assert bucket.requests == 0


def test_tokens_are_fetched_together() -> None:
    world, bucket = a_limited_world()
    for _ in range(8):
        world.submit()
    world.sweep()
    assert bucket.requests <= 2


def test_a_sweep_within_its_horizon_goes_on_as_tokens_come() -> None:
    world, _ = a_limited_world("2/s")
    for _ in range(9):
        world.submit()
    start = world.clock.now()
    assert world.sweep(SweepLimits(linger=timedelta(seconds=3))).completed == 9
    assert world.clock.now() - start >= timedelta(seconds=3)


def a_log_of_keys(world: World) -> list[str]:
    log: list[str] = []

    def handler(order: str) -> None:
        log.append(order)

    world.handler(handler)
    return log


def test_tasks_of_one_key_run_one_after_the_other_in_due_order() -> None:
    world = World(dispatch={"concurrency": 8}, index_shards=4)
    running, overlaps, log, lock = [0], [0], [], threading.Lock()

    def handler(order: str) -> None:
        with lock:
            running[0] += 1
            overlaps[0] = max(overlaps[0], running[0])
            log.append(order)
        threading.Event().wait(0.002)
        with lock:
            running[0] -= 1

    world.handler(handler)
    for number in range(12):
        world.submit(f"{number:02d}", concurrency_key="ann")
        world.clock.advance("1s")
    assert world.sweep().completed == 12
    assert (overlaps[0], log) == (1, sorted(log))


def test_a_long_line_of_followers_starts_in_due_order_too() -> None:
    world = World(dispatch={"concurrency": 8, "batch_size": 10})
    log = a_log_of_keys(world)
    for number in range(100):
        world.submit(f"{number:02d}", concurrency_key="ann")
        world.clock.advance("1ms")
    assert world.sweep(SweepLimits(horizon=timedelta(seconds=10))).completed == 100
    assert log == sorted(log)


class OneLine:
    """A store whose index has one shard, with tasks of one key in due order."""

    def __init__(self, count: int, clock: FrozenClock) -> None:
        self.waiting = {
            f"{number:04d}": Candidate(
                task_id=f"{number:04d}",
                queue=QUEUE,
                due_at=clock.now() - timedelta(seconds=count - number),
                status=Status.PENDING,
                fencing_token=0,
                handler_ref="handler",
                concurrency_key="ann",
            )
            for number in range(count)
        }

    def candidates(
        self, queue: str, shard: int, *, until: datetime, limit: int, after: Any = None
    ) -> Page[Candidate]:
        found = [each for name, each in self.waiting.items() if after is None or name > after]
        more = found[limit - 1].task_id if len(found) > limit else None
        return Page(found[:limit], more)


@pytest.mark.parametrize("reads_between", [0, 1, 5])
@pytest.mark.parametrize("count", [1, 32, 33, 100, 1000])
def test_no_task_overtakes_another_of_its_key_that_was_refused(
    count: int, reads_between: int
) -> None:
    clock = FrozenClock()
    store = OneLine(count, clock)
    settings = QueueSettings.from_plain(
        {"queue": QUEUE, "index_shards": 1, "dispatch": {"batch_size": 10}}
    )
    reader = DueReader(QUEUE, store, clock=clock, jitter=NoJitter(), on_error=print)  # type: ignore[arg-type]
    admission = Admission(QUEUE, reader, NoLimit(), clock=clock, on_deferred=lambda: None)
    started: list[str] = []

    def look() -> Candidate | None:
        return admission.next(settings, until=clock.now(), poll=timedelta(seconds=1), slots=8)

    while store.waiting:
        running = look()
        if running is None:
            clock.advance("100ms")
            continue
        started.append(running.task_id)
        # Some pages are read while the task runs, others after its end has let the next one start.
        assert [look() for _ in range(reads_between)] == [None] * reads_between
        del store.waiting[running.task_id]
        admission.ended(running)
    assert started == sorted(started)
    assert len(started) == count


def test_a_follower_that_is_read_many_times_is_queued_once() -> None:
    world = World(dispatch={"concurrency": 2})
    log: list[str] = []

    def handler(order: str) -> None:
        log.append(order)
        for _ in range(20 if order == "first" else 0):
            world.clock.advance("1s")
            threading.Event().wait(0.002)

    world.handler(handler)
    for order in ("first", "second", "third"):
        world.submit(order, concurrency_key="ann")
        world.clock.advance("1ms")
    report = world.sweep(SweepLimits(horizon=timedelta(seconds=10)))
    assert (report.completed, report.contended) == (3, 0)
    assert log == ["first", "second", "third"]


def count_reads(world: World) -> list[int]:
    """A list that grows with each page of candidates that is read."""
    reads: list[int] = []
    candidates = world.store.candidates

    def counted(queue: str, shard: int, **options: Any) -> Page[Candidate]:
        reads.append(shard)
        return candidates(queue, shard, **options)

    world.store.candidates = counted  # type: ignore[method-assign]
    return reads


def test_a_thousand_followers_of_one_key_do_not_keep_another_key_waiting() -> None:
    world = World(dispatch={"concurrency": 2, "batch_size": 100})
    started: list[str] = []
    release = threading.Event()

    def handler(order: str) -> None:
        started.append(order)
        if order == "a":
            release.wait(20)
        else:
            release.set()

    world.handler(handler)
    for _ in range(1000):
        world.submit("a", concurrency_key="a")
    world.clock.advance("1s")
    world.submit("b", concurrency_key="b")
    reads = count_reads(world)
    world.sweep(SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=10))
    assert started.index("b") <= 1  # the two slots start side by side
    assert len(reads) <= 2 * 11


def test_a_key_that_another_host_holds_is_deferred_and_costs_no_attempt() -> None:
    world = World()
    a_log_of_keys(world)
    first, second = (world.submit(concurrency_key="ann") for _ in range(2))
    elsewhere = threading.Event()
    held = threading.Event()

    def holds(_order: str) -> None:
        held.set()
        elsewhere.wait(20)

    other = World()
    other.parts, other.store = world.parts, world.store
    other.handler(holds)
    sweeper = build_sweeper(world.parts, other.registry, serves=[QUEUE], worker="other:1")
    thread = threading.Thread(
        target=sweeper.sweep,
        args=(SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=1),),
    )
    thread.start()
    assert held.wait(10)
    report = world.sweep()
    assert (report.claimed, report.deferred) == (0, 1)
    elsewhere.set()
    thread.join(10)
    world.clock.advance("5s")
    assert world.sweep().completed == 1
    assert [len(world.attempts(task_id)) for task_id in (first, second)] == [1, 1]


def test_a_lapsed_holder_keeps_its_key_until_it_is_reclaimed() -> None:
    from tests.engine.test_sweep import claimed_by_nobody_alive

    world = World(index_shards=1)
    log = a_log_of_keys(world)
    first = world.submit("first", concurrency_key="ann")
    claimed_by_nobody_alive(world, first)
    world.clock.advance("1s")
    world.submit("second", concurrency_key="ann")
    assert world.sweep().claimed == 0
    world.clock.advance("60s")
    world.sweep()
    world.clock.advance("2s")
    world.sweep()
    assert log == ["first", "second"]


@pytest.mark.parametrize(
    ("declared", "host", "served"),
    [
        ({}, Host.WORKER, True),
        ({}, Host.SWEEPER, False),
        ({"dispatch": {"host": "sweeper"}}, Host.WORKER, False),
        ({"dispatch": {"host": "any"}}, Host.SWEEPER, True),
        ({"handlers": {"charge": {"function": "f"}}}, Host.WORKER, False),
    ],
)
def test_only_the_kind_of_host_that_may_serve_a_queue_touches_its_tasks(
    declared: dict[str, object], host: Host, *, served: bool
) -> None:
    world = World(**declared)
    task_id = world.submit(ref="unknown-here")
    sweeper = build_sweeper(world.parts, world.registry, serves=[QUEUE], worker="host:1", host=host)
    sweeper.sweep(NOW_ONLY)
    assert world.task(task_id).status is (Status.DEAD if served else Status.PENDING)


def sweeps_with(world: World, reconciler: Reconciler) -> int:
    world.registry.reconciler(reconciler.name, timeout=reconciler.timeout)(
        lambda _rdq: reconciler.call()
    )
    return world.sweep().completed


def test_reconcilers_run_before_the_first_claim() -> None:
    world = World()
    log = a_log_of_keys(world)
    repair = Reconciler("pending", lambda: world.submit("repaired"), timedelta(seconds=5))
    assert sweeps_with(world, repair) == 1
    assert log == ["repaired"]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_failing_reconciler_is_reported_and_starves_nothing(error: BaseException) -> None:
    world = World()
    a_log_of_keys(world)
    world.submit()

    def fails() -> None:
        raise error

    assert sweeps_with(world, Reconciler("pending", fails, timedelta(seconds=5))) == 1
    assert world.told.errors == [("reconciler pending", error)]


def test_a_hanging_reconciler_is_reported_and_is_not_started_twice() -> None:
    world = World()
    a_log_of_keys(world)
    world.submit()
    release, starts = threading.Event(), []

    def hangs() -> None:
        starts.append(1)
        while not release.wait(0.01):
            world.clock.advance("1s")

    assert sweeps_with(world, Reconciler("pending", hangs, timedelta(seconds=5))) == 1
    assert [where for where, _ in world.told.errors] == ["reconciler pending"]
    assert starts == [1]
    release.set()


def test_a_stop_does_not_wait_for_a_hanging_reconciler() -> None:
    world, stop, release = World(), Stop(), threading.Event()
    ended: list[str] = []

    def hangs(_rdq: object) -> None:
        stop.request()
        release.wait(HANGS)
        ended.append("hangs")

    world.registry.reconciler("hangs", timeout="1h")(hangs)
    world.registry.reconciler("next")(lambda _rdq: ended.append("next"))
    world.sweep(SweepLimits(horizon=None), stop)
    assert (ended, world.told.errors) == ([], [])
    release.set()


def test_a_hanging_reconciler_takes_no_more_than_the_time_in_which_may_be_claimed() -> None:
    world, release = World(), threading.Event()

    def hangs(_rdq: object) -> None:
        while not release.wait(0.001):
            world.clock.advance("1s")

    world.registry.reconciler("hangs", timeout="1h")(hangs)
    world.sweep(SweepLimits(deadline=world.clock.now() + timedelta(seconds=10)))
    release.set()
    assert [str(error) for _, error in world.told.errors] == ["not done within 0:00:10"]


def test_no_reconciler_is_started_when_the_time_in_which_may_be_claimed_is_over() -> None:
    world, started = World(), []
    world.registry.reconciler("slow")(lambda _rdq: world.clock.advance("10s"))
    world.registry.reconciler("next")(lambda _rdq: started.append("next"))
    world.sweep(SweepLimits(deadline=world.clock.now() + timedelta(seconds=10)))
    assert (started, world.told.errors) == ([], [])


class Reading(DueReader):
    """Reads these candidates one by one. While it reads the last one, the run of the first ends."""

    admission: Admission

    def __init__(self, world: World, candidates: Sequence[Candidate]) -> None:
        super().__init__(
            QUEUE, world.store, clock=world.clock, jitter=NoJitter(), on_error=world.told.on_error
        )
        self._first, *_ = self._left = deque(candidates)

    def next(self, *_arguments: object, **_options: object) -> Candidate | None:
        if len(self._left) == 1:
            self.admission.ended(self._first)
        return self._left.popleft() if self._left else None


def test_a_run_that_ends_while_a_page_is_read_is_followed_by_the_first_in_line() -> None:
    world = World()
    settings, now = world.parts.queues.settings(QUEUE), world.clock.now()
    told: dict[str, Any] = {
        "queue": QUEUE,
        "due_at": now,
        "status": Status.PENDING,
        "fencing_token": 0,
        "handler_ref": "charge",
    }
    due_reader = Reading(
        world, [Candidate(task_id=name, concurrency_key="ann", **told) for name in "123"]
    )
    due_reader.admission = admission = Admission(
        QUEUE, due_reader, NoLimit(), clock=world.clock, on_deferred=lambda: None
    )

    def hands_out() -> str | None:
        found = admission.next(settings, until=now, poll=timedelta(seconds=1), slots=1)
        return found.task_id if found else None

    assert [hands_out() for _ in range(4)] == ["1", None, None, "2"]


def test_a_limiter_that_cannot_be_reached_is_reported_and_holds_the_work_back() -> None:
    world, bucket = a_limited_world()
    task_id = world.submit()

    def fails(*_arguments: object, **_options: object) -> int:
        raise StoreFailed("throttled", may_have_happened=False)

    bucket.take = fails  # type: ignore[method-assign]
    assert world.sweep().claimed == 0
    assert [where for where, _ in world.told.errors] == ["rate limit of queue billing"]
    assert world.task(task_id).status is Status.PENDING
    del bucket.take
    world.clock.advance("2s")
    assert world.sweep().completed == 1


class Moving:
    """A cursor that the scheduler's thread moves while a run looks at it."""

    pass_number = 1

    def __init__(self, cursors: deque[Any]) -> None:
        self._cursors = cursors

    @property
    def after(self) -> str:
        self._cursors.append(self._cursors.popleft())
        return "page"


def test_a_run_may_find_its_key_busy_while_pages_are_read() -> None:
    clock = FrozenClock()
    store = OneLine(3, clock)
    reader = DueReader(QUEUE, store, clock=clock, jitter=NoJitter(), on_error=print)  # type: ignore[arg-type]
    admission = Admission(QUEUE, reader, NoLimit(), clock=clock, on_deferred=lambda: None)
    settings = QueueSettings.from_plain({"queue": QUEUE})
    poll = timedelta(seconds=1)
    first = admission.next(settings, until=clock.now(), poll=poll, slots=1)
    assert first is not None
    cursors: deque[Any] = reader._cursors
    cursors.extend([Moving(cursors), Moving(cursors)])
    admission.put_back(first, busy_until=clock.now() + poll)
