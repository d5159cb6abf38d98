"""A sweep announces its presence while it is at work, so that no other one is started."""

from dataclasses import replace
from datetime import datetime, timedelta

from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import StoreFailed
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.stores.memory_control import MemoryReservations
from rdq_core.testing.clock import NOON
from tests.engine.world import QUEUE, World, sleeps_until, until

LIMITS = SweepLimits(horizon=timedelta(seconds=20))


def sweep(world: World, limits: SweepLimits = LIMITS) -> None:
    build_sweeper(
        world.parts, world.registry, serves=[QUEUE, "mail"], worker="w", awake=True
    ).sweep(limits)


def is_awake(world: World, queue: str = QUEUE) -> bool:
    return world.reservations.is_awake(queue, world.clock.now())


def world_that_looks(said: list[bool]) -> World:
    """A world whose handler looks whether its sweep says that it is awake."""
    world = World()
    world.configure("mail")
    world.handler(lambda _order: said.append(is_awake(world)))
    return world


def test_a_sweep_announces_itself_while_it_is_at_work_and_withdraws_at_its_end() -> None:
    said: list[bool] = []
    world = World()
    world.configure("mail")

    def slow(_order: str) -> None:
        for _ in range(5):
            world.clock.advance("1s")
            until(lambda: is_awake(world))
            said.append(is_awake(world))

    world.handler(slow)
    world.submit()
    sweep(world)
    assert said == [True] * 5
    assert not is_awake(world)
    assert not is_awake(world, "mail")


def test_an_idle_sweep_writes_nothing() -> None:
    world = World()
    world.configure("mail")
    world.reservations = None  # type: ignore[assignment]
    sweep(world)


def test_after_its_last_work_a_sweep_withdraws_and_still_looks_itself() -> None:
    world = world_that_looks([])
    world.submit()
    told: list[bool] = []

    def submit_late(_seconds: float) -> None:
        told.append(is_awake(world))
        world.submit()

    sleeps_until(world, timedelta(seconds=2), submit_late)
    sweep(world)
    assert told == [False]
    assert world.parts.store.counts(QUEUE).pending == 0


def test_a_due_time_ahead_keeps_a_sweep_looking_without_an_announcement() -> None:
    world = world_that_looks([])
    world.submit(delay="15s")
    told: list[bool] = []
    sleeps_until(world, timedelta(seconds=9), lambda _seconds: told.append(is_awake(world)))
    sweep(world)
    assert told == [False]
    assert world.clock.now() - NOON >= timedelta(seconds=15)


def test_an_announcement_that_fails_is_reported_and_stops_nothing() -> None:
    world = world_that_looks([])
    failing = StoreFailed("no", may_have_happened=True)

    class Mute(MemoryReservations):
        def extend(self, queue: str, *, until: datetime) -> None:
            raise failing

        def release(self, queue: str) -> None:
            raise failing

    world.parts = replace(world.parts, reservations=Mute())
    world.submit()
    sweep(world)
    assert {where for where, _ in world.told.errors} == {
        f"announcing the sweep of queue {QUEUE}",
        f"withdrawing the announcement of queue {QUEUE}",
    }
    assert world.parts.store.counts(QUEUE).pending == 0
