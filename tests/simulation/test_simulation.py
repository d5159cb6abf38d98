"""Many processes, every kind of trouble, and the promises that hold all the same."""

import itertools
import os
import subprocess
import sys

import pytest

from tests.simulation.plan import plan_of
from tests.simulation.planted import MISTAKES
from tests.simulation.shrinking import failure_of, shrunk
from tests.simulation.world import World

pytestmark = pytest.mark.slow

SEEDS = 150
AT_ONCE = 50
MOST = 1000
SEEN_BY = {
    "a redrive undoes a later death": [54],
    "a record is put over a published one": [466],
    "a reclaim takes a live lease": [256],
    "a leaked slot is taken twice": [94],
    "a record in doubt is deleted": [908],
    "a write is denied when what follows it fails": [368],
    "a page that is taken over counts as done": [541],
    "a job goes on from where it has not been": [246],
    "a release spends budget": [46],
    "a job that has ended is begun again by a late request": [77],
    "a refused start keeps its reservation": [52],
    "a kick leaves work of the next seconds to the schedule": [39],
    "a sweep withdraws its announcement after looking": [301],
    "a reservation lasts longer than a sweep looks": [397],
}
"""Seeds that have seen what most don't, tried first to save minutes. When they do no longer, the
others are tried.
"""


@pytest.mark.parametrize("first", range(1, SEEDS, AT_ONCE))
def test_every_promise_is_kept_whatever_goes_wrong(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        failure = failure_of(plan_of(str(seed)))
        assert failure is None, f"\n{shrunk(failure)}"


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_a_seed_gives_the_same_run_each_time(seed: str) -> None:
    stories = []
    for _ in range(2):
        world = World(plan_of(seed))
        world.run()
        stories.append(world.timeline.told())
    assert stories[0] == stories[1]


def test_seeds_meet_every_kind_of_trouble() -> None:
    worlds = [World(plan_of(str(seed))) for seed in range(1, 41)]
    for world in worlds:
        world.run()
    told = "\n".join(world.timeline.told() for world in worlds)
    for trouble in worlds[0].plan.rates:
        assert f"{trouble}: " in told
    for happening in (
        "everybody stands still",
        "its clock is set",
        "time to live removed",
        "by redrive",
        "by purge",
    ):
        assert happening in told
    for happening in ("put control jobs#done", "a batch fails", "a sweep ends before its end"):
        assert happening in told


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_seen(name: str) -> None:
    seeds = itertools.chain(SEEN_BY.get(name, ()), range(1, MOST + 1))
    with MISTAKES[name]():
        failures = (failure_of(plan_of(str(seed))) for seed in seeds)
        assert any(failure is not None and not failure.is_a_slip for failure in failures)


def test_a_seed_means_the_same_in_every_process() -> None:
    stories = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seed", "5"],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    ]
    assert stories[0] == stories[1] != ""


def test_a_failure_is_made_small_and_told_as_a_story() -> None:
    with MISTAKES["a redrive leaves the dead-letter entry"]():
        failures = (failure_of(plan_of(str(seed))) for seed in range(1, 100))
        failure = next(found for found in failures if found is not None)
        small = shrunk(failure)
        story = str(failure_of(small.plan))
    assert small.promise == failure.promise
    assert (small.plan.tasks, small.plan.workers, sum(small.plan.rates.values())) <= (3, 1, 0)
    assert "by redrive" in story
    assert len(story.splitlines()) < 60
