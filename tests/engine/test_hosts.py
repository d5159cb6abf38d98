"""Several hosts on the same tables: who serves what, whose turn it is, and who holds a key."""

import random
import threading
from collections import Counter
from datetime import timedelta

import pytest

from rdq_core import Registry, Status
from rdq_core.config.settings import Host
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.task import Task
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import TaskConflict
from rdq_core.runtime.sweepers import build_sweeper
from tests.engine.world import NOW_ONLY, QUEUE, World


def a_registry(queue: str, ref: str, ran: list[str]) -> Registry:
    registry = Registry(queues=[queue])

    def handler(order: str) -> None:
        ran.append(f"{ref}:{order}")

    registry.register(ref, handler)
    return registry


def test_a_worker_and_a_sweeper_function_leave_each_other_s_tasks_alone() -> None:
    ran: list[str] = []
    world = World()
    world.configure("mail", index_shards=1, dispatch={"host": "sweeper"})
    serves = (QUEUE, "mail")  # even where both look at both
    worker = build_sweeper(
        world.parts, a_registry(QUEUE, "charge", ran), serves=serves, worker="host:1"
    )
    function = build_sweeper(
        world.parts,
        a_registry("mail", "send", ran),
        serves=serves,
        worker="lambda:1",
        host=Host.SWEEPER,
    )
    tasks = [world.submit("7", ref="charge"), world.submit("8", queue="mail", ref="send")]
    for host in (worker, function, worker):
        host.sweep(NOW_ONLY)
    assert [world.task(task_id).status for task_id in tasks] == [Status.SUCCEEDED, Status.SUCCEEDED]
    assert sorted(ran) == ["charge:7", "send:8"]


def test_a_host_touches_no_queue_that_it_does_not_serve() -> None:
    world = World()
    world.configure("mail", index_shards=1)
    task_id = world.submit(queue="mail", ref="send")
    build_sweeper(
        world.parts, a_registry(QUEUE, "charge", []), serves=[QUEUE], worker="host:1"
    ).sweep(NOW_ONLY)
    assert world.task(task_id).status is Status.PENDING


def bulk(world: World, queue: str, count: int) -> None:
    """Many due tasks, stored without a submit's checks."""
    now = world.clock.now() - timedelta(hours=1)
    for _ in range(count):
        task = Task(
            id=world.ids.task_id(),
            queue=queue,
            handler_ref="charge",
            payload=b"old",
            created_at=now,
            next_attempt_at=now,
        )
        world.store.submit(task, shards=1)


@pytest.mark.slow
def test_a_hundred_thousand_due_tasks_do_not_keep_another_queue_waiting() -> None:
    world, started = World(dispatch={"concurrency": 8}), []
    world.configure("small", index_shards=1)

    def handler(order: str) -> None:
        started.append(order)

    world.handler(handler)
    bulk(world, QUEUE, 100_000)
    world.submit("new", queue="small")
    world.sweep(SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=50))
    assert "new" in started[:20]
    assert len(started) >= 50


def test_a_backlog_of_followers_does_not_keep_another_queue_waiting() -> None:
    world, started, release = (
        World(dispatch={"concurrency": 2, "batch_size": 10}),
        [],
        threading.Event(),
    )
    world.configure("small", index_shards=1)

    def handler(order: str) -> None:
        started.append(order)
        if order == "ann":
            release.wait(20)
        else:
            release.set()

    reads: list[str] = []
    candidates = world.store.candidates

    def counted(queue: str, *arguments: object, **options: object) -> object:
        reads.append(queue)
        return candidates(queue, *arguments, **options)  # type: ignore[arg-type]

    world.store.candidates = counted  # type: ignore[method-assign,assignment]
    world.handler(handler)
    for _ in range(1_000):
        world.submit("ann", concurrency_key="ann")
    world.submit("new", queue="small")
    world.sweep(SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=2))
    assert sorted(started[:2]) == ["ann", "new"]
    assert reads.index("small") < 10  # of a hundred pages of followers


def test_two_sweepers_at_once_give_a_key_one_holder() -> None:
    # The one that has nothing to do moves the clock: what the other one holds must not end by that.
    world = World(dispatch={"concurrency": 8}, execution={"lease": "24h", "handler_timeout": "12h"})
    running, overlaps, lock = Counter[str](), [], threading.Lock()

    def handler(key: str) -> None:
        with lock:
            running[key] += 1
            overlaps.append(running[key])
        threading.Event().wait(0.001)
        with lock:
            running[key] -= 1

    world.handler(handler)
    tasks = [world.submit(key, concurrency_key=key) for key in "abc" * 20]
    sweepers = [
        build_sweeper(world.parts, world.registry, serves=[QUEUE], worker=f"host:{n}")
        for n in range(2)
    ]

    def sweep_on(number: int) -> None:
        sweepers[number].sweep(SweepLimits(horizon=timedelta(seconds=30), deadline=None))

    threads = [threading.Thread(target=sweep_on, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {world.task(task_id).status for task_id in tasks} == {Status.SUCCEEDED}
    assert set(overlaps) == {1}


def test_no_key_has_two_holders_and_none_is_stuck_whatever_happens_to_its_tasks() -> None:
    world = World(
        retry={"max_attempts": 2, "initial_backoff": "1s"},
        execution={"lease": "6s", "handler_timeout": "5m"},
    )
    dice, running, overlaps = random.Random(4), Counter[str](), []

    def handler(key: str) -> None:
        running[key] += 1
        overlaps.append(running[key])
        try:
            if dice.random() < 0.4:
                raise ConnectionError
        finally:
            running[key] -= 1

    world.handler(handler)
    tasks: list[str] = []
    for _ in range(500):
        step = dice.choice(
            ("submit", "submit", "sweep", "sweep", "crash", "cancel", "redrive", "wait")
        )
        take_step(world, step, tasks, dice)
    for _ in range(200):
        world.sweep()
        world.clock.advance("7s")
    assert set(overlaps) == {1}
    assert {world.task(task_id).status for task_id in tasks} <= {
        Status.SUCCEEDED,
        Status.DEAD,
        Status.CANCELLED,
    }


def claim_and_die(world: World) -> None:
    """A host claims the first task that it may, and is never heard of again."""
    now = world.clock.now()
    for candidate in world.store.candidates(QUEUE, 0, until=now, limit=100).items:
        grant = Grant(token=world.ids.token(), now=now, lease_expires_at=now + timedelta(seconds=6))
        if candidate.status is Status.PENDING and isinstance(
            world.store.claim_keyed(candidate, grant), Claim
        ):
            return


def take_step(world: World, step: str, tasks: list[str], dice: random.Random) -> None:
    if step == "submit":
        key = dice.choice("ab")
        tasks.append(world.submit(key, concurrency_key=key))
    elif step == "sweep":
        world.sweep()
    elif step == "wait":
        world.clock.advance("3s")
    elif step == "crash":
        claim_and_die(world)
    elif tasks:
        task_id = dice.choice(tasks)
        entry = world.store.dead_entry(task_id)
        if step == "redrive" and entry is not None:
            world.parts.redriver().redrive(entry, op_id="op", force=True)
        elif step == "cancel":
            try:
                world.store.cancel(task_id, now=world.clock.now(), op_id="op", expires_at=None)
            except TaskConflict:
                return
