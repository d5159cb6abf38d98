"""Deleting a queue: it refuses submits, is still swept, is read twice, and watched afterwards."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rdq_core import Abort
from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import StoredQueue
from rdq_core.domain.task import Status
from rdq_core.engine.auditor import Principal
from rdq_core.engine.removal import REFUSES_FOR
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import CorruptItem, QueueNotFound, StoreFailed
from rdq_core.runtime.wiring import Parts
from rdq_core.testing.clock import FrozenClock
from rdq_core.testing.contract.factories import a_task
from tests.engine.world import QUEUE, World, raises
from tests.support.stores import Dynamo

LONG_ENOUGH = SweepLimits(horizon=timedelta(0), linger=timedelta(seconds=2))
"""A sweep that goes on for two seconds, so that it reads twice."""


@pytest.fixture
def world() -> World:
    return World()


def kept_in(done: list[str]) -> Callable[[str], None]:
    """A handler that keeps what it is given."""

    def handler(order: str) -> None:
        done.append(order)

    return handler


def stored(world: World) -> StoredQueue:
    found = world.queues.stored(QUEUE)
    assert found is not None
    return found


def delete(world: World) -> None:
    world.queues.begin_delete(QUEUE, now=world.clock.now())


def deleted(world: World) -> World:
    """The queue became a tombstone just now."""
    delete(world)
    world.clock.advance(REFUSES_FOR)
    world.sweep(LONG_ENOUGH)
    assert stored(world).is_deleted
    return world


def put_behind_its_back(world: World) -> str:
    """A task of a submitter whose configuration is old."""
    return world.store.submit(
        a_task(queue=QUEUE, handler_ref="charge", payload=b"late"), shards=1
    ).task.id


def audited(world: World) -> list[tuple[str, str]]:
    records = world.audit.records(
        QUEUE, since=world.clock.now() - timedelta(days=300), before="Z" * 26, limit=99
    )
    return [(record.operation, str(record.phase)) for record in reversed(records)]


def test_an_empty_queue_becomes_a_tombstone_after_six_minutes_and_two_readings(
    world: World,
) -> None:
    delete(world)
    world.clock.advance(REFUSES_FOR - timedelta(seconds=3))
    world.sweep(LONG_ENOUGH)
    assert not stored(world).is_deleted

    world.clock.advance("3s")
    world.sweep()  # one reading alone
    assert not stored(world).is_deleted

    world.clock.advance("1s")
    world.sweep()

    assert stored(world).is_deleted
    assert audited(world) == [("queue.delete.end", "intent"), ("queue.delete.end", "done")]


def test_a_queue_that_is_being_deleted_is_swept_on(world: World) -> None:
    done: list[str] = []
    world.handler(kept_in(done))
    task_id = world.submit("last order")
    delete(world)

    world.sweep()

    assert done == ["last order"]
    assert world.task(task_id).status is Status.SUCCEEDED


def test_work_that_waits_keeps_a_queue_from_being_buried(world: World) -> None:
    world.handler(kept_in([]))
    world.submit("next week", delay="3d")
    delete(world)

    for _ in range(20):
        world.clock.advance("1m")
        world.sweep(LONG_ENOUGH)

    assert not stored(world).is_deleted


def test_dead_tasks_keep_a_queue_from_being_buried_until_they_are_purged(world: World) -> None:
    world.handler(raises(Abort("bad", "never")))
    task_id = world.submit()
    world.sweep()
    delete(world)
    world.clock.advance(REFUSES_FOR)
    world.sweep(LONG_ENOUGH)
    assert not stored(world).is_deleted

    entry = world.store.dead_entry(task_id)
    assert entry is not None
    world.store.purge(entry, now=world.clock.now(), op_id="op")
    world.clock.advance("1m")
    world.sweep(LONG_ENOUGH)

    assert stored(world).is_deleted


def test_a_task_between_the_two_readings_begins_them_again(world: World) -> None:
    delete(world)
    world.clock.advance(REFUSES_FOR)
    world.sweep()
    world.handler(kept_in([]))
    put_behind_its_back(world)
    world.clock.advance("1s")

    world.sweep()

    assert not stored(world).is_deleted


def test_a_task_found_under_a_tombstone_opens_the_queue_again_with_an_alarm_and_is_run(
    world: World,
) -> None:
    deleted(world)
    done: list[str] = []
    world.handler(kept_in(done))
    put_behind_its_back(world)
    world.clock.advance("1m")

    world.sweep()
    world.sweep()

    assert (stored(world).is_deleted, stored(world).deleting_at) == (False, world.clock.now())
    assert done == ["late"]
    alarms = [error for where, error in world.told.errors if where == f"deletion of queue {QUEUE}"]
    assert ["a task was found in it" in str(alarm) for alarm in alarms] == [True]
    assert audited(world)[2:] == [
        ("queue.delete.reopen", "intent"),
        ("queue.delete.reopen", "done"),
    ]


def looks(world: World, *, every: str, times: int) -> int:
    """How many of the sweeps look at the tombstone."""
    seen = {stored(world).looked_at}
    for _ in range(times):
        world.clock.advance(every)
        world.sweep()
        seen.add(stored(world).looked_at)
    return len(seen) - 1


def test_a_tombstone_is_looked_at_once_a_minute_for_a_day_and_then_daily(world: World) -> None:
    deleted(world)

    assert looks(world, every="20s", times=9) == 3
    world.clock.advance("1d")
    world.sweep()
    assert looks(world, every="2h", times=36) == 3


def test_a_queue_that_is_declared_again_between_the_readings_stays(world: World) -> None:
    delete(world)
    world.clock.advance(REFUSES_FOR)
    world.sweep()
    world.configure(index_shards=1)
    world.clock.advance("1s")

    world.sweep()

    assert not stored(world).is_leaving
    world.submit()


def test_a_store_that_does_not_answer_stops_no_sweep_and_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete(world)
    world.clock.advance(REFUSES_FOR)
    done: list[str] = []
    world.handler(kept_in(done))
    put_behind_its_back(world)

    def fails(*_: object, **__: object) -> bool:
        raise StoreFailed("no answer", may_have_happened=False)

    monkeypatch.setattr(world.queues, "note_look", fails)
    world.sweep()

    assert done == ["late"]
    assert [where for where, _ in world.told.errors] == [f"deletion of queue {QUEUE}"]


def test_a_queue_without_a_recorded_shard_count_is_looked_at_all_the_same(world: World) -> None:
    """Its item was written by hand: nothing says how many shards it has had."""
    world.handler(kept_in([]))
    world.submit("next week", delay="3d")
    delete(world)
    world.clock.advance(REFUSES_FOR)
    uncounted = replace(stored(world), shards_ever=0)

    assert not world.parts.removals(world.parts.auditor(Principal("ann"))).finish(
        uncounted, world.parts.idle
    )


def test_an_operator_who_asks_again_in_time_ends_the_deletion(world: World) -> None:
    removals = world.parts.removals(world.parts.auditor(Principal("ann")))
    delete(world)
    assert not removals.finish(stored(world), world.parts.idle)

    world.clock.advance(REFUSES_FOR)
    before = world.clock.now()

    assert removals.finish(stored(world), world.parts.idle)
    assert stored(world).is_deleted
    assert world.clock.now() - before == timedelta(seconds=1)


def test_an_override_that_a_deploy_contradicts_is_reported_once(world: World) -> None:
    from rdq_core.config.stored import Override

    world.queues.put_override(
        QUEUE,
        Override(layer={"execution": {"heartbeat": "20s"}}, reason="slow disk"),
        expected_revision=0,
    )
    world.configure(execution={"lease": "10s", "handler_timeout": "9s"})
    done: list[str] = []
    world.handler(kept_in(done))
    world.submit("order")

    world.sweep()
    world.sweep()

    assert done == ["order"]
    told = [str(error) for _, error in world.told.errors]
    assert told == [
        f"queues.{QUEUE}: the override contradicts what has been declared since, and is not applied"
    ]


def test_configuration_that_cannot_be_read_stops_its_own_queue_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.configure("email", index_shards=1)
    done: list[str] = []
    world.handler(kept_in(done))
    world.submit("mail", queue="email")
    sweeper, read = world.sweeper, world.queues.settings

    def breaks(queue: str, **options: Any) -> QueueSettings:
        if queue == QUEUE:
            raise CorruptItem("edited by hand")
        return read(queue, **options)

    monkeypatch.setattr(world.queues, "settings", breaks)
    sweeper.sweep(LONG_ENOUGH)

    assert done == ["mail"]
    assert (f"configuration of queue {QUEUE}", "edited by hand") in [
        (where, str(error)) for where, error in world.told.errors
    ]


# -- on DynamoDB -----------------------------------------------------------------------------------


def on_tables(dynamo: Dynamo, parts: Parts, clock: FrozenClock) -> Any:
    """The world's parts, on tables."""
    queues = dynamo.queues()
    store = replace(dynamo, shards_ever=queues.shards_ever).store()
    return replace(parts, store=store, queues=queues, audit=dynamo.audit(), clock=clock)


def test_the_same_happens_on_tables(on_dynamodb: Dynamo, world: World) -> None:
    parts = on_tables(on_dynamodb, world.parts, on_dynamodb.clock)
    parts.queues.put_declared(QUEUE, {"index_shards": 3}, {}, expected_revision=0)
    parts.queues.begin_delete(QUEUE, now=on_dynamodb.clock.now())
    removals = parts.removals(parts.auditor(Principal("ann")))

    on_dynamodb.clock.advance(REFUSES_FOR)
    removals.run()
    on_dynamodb.clock.advance("1s")
    removals.run()
    with pytest.raises(QueueNotFound):
        parts.queues.settings(QUEUE)

    parts.store.submit(a_task(queue=QUEUE), shards=3)
    on_dynamodb.clock.advance("1m")
    removals.run()
    assert parts.queues.settings(QUEUE).deleting
