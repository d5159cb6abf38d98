"""Jobs in the hands of sweeps, which take on whatever is open, and of people who meanwhile change
their minds.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from rdq_core.domain.job import JobState
from rdq_core.domain.task import Status
from rdq_core.engine.ports import Clock
from rdq_core.engine.sweep import SweepLimits
from rdq_core.ops.background_jobs import BackgroundJobs
from rdq_core.ops.orders import Operation, Order
from tests.engine.world import QUEUE
from tests.ops.crew import ALL, ANN, Crew


@pytest.fixture
def crew() -> Crew:
    return Crew()


class Ticking:
    """A clock that goes on by ten milliseconds with each look at it, so that whoever only looks
    comes to an end.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.looks = 0

    def now(self) -> datetime:
        self.looks += 1
        return self._clock.now() + timedelta(milliseconds=10 * self.looks)

    def monotonic(self) -> float:
        return self._clock.monotonic()


def test_a_job_that_is_paused_under_the_hands_of_a_sweep_is_left_alone(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.bury(6)
    job, parts, replaced = crew.start(), crew.parts, crew.parts.jobs.replace
    pauses, clock = iter([True]), Ticking(crew.clock)

    def written(*versions: Any) -> bool:
        if next(pauses, False):
            crew.jobs().pause(job.id)
        return replaced(*versions)

    monkeypatch.setattr(parts.jobs, "replace", written)
    background_work = BackgroundJobs(
        parts.jobs, parts.advancer(at_once=1), clock=clock, on_error=parts.on_error
    )
    assert background_work.step(until=crew.clock.now() + timedelta(seconds=10)) is None
    assert crew.jobs().get(job.id).state is JobState.PAUSED
    assert clock.looks < 10


def test_a_sweep_takes_open_jobs_on_and_stays_for_their_next_pages(crew: Crew) -> None:
    ids = crew.bury(7)
    crew.world.handler(lambda _order: None, ref="charge-card")
    job = crew.start()

    crew.world.sweep(SweepLimits(horizon=timedelta(seconds=5)))

    assert crew.jobs().get(job.id).state is JobState.DONE
    tasks = [crew.store.get(task_id) for task_id in ids]
    assert [task.status for task in tasks if task] == [Status.SUCCEEDED] * 7


def test_a_host_that_has_found_no_job_looks_again_after_a_while(crew: Crew) -> None:
    background_work = crew.background_work()
    assert background_work.step(until=crew.clock.now() + timedelta(seconds=1)) is None
    crew.bury(2)
    job = crew.jobs().start(
        QUEUE, Order(operation=Operation.REDRIVE, selection=ALL), crew.parts.auditor(ANN)
    )
    crew.clock.advance("1s")
    assert background_work.step(until=crew.clock.now() + timedelta(seconds=1)) is None
    assert crew.jobs().get(job.id).state is JobState.OPEN

    crew.clock.advance("15s")
    background_work.step(until=crew.clock.now() + timedelta(seconds=1))

    assert crew.jobs().get(job.id).state is JobState.DONE


def test_a_job_that_cannot_be_understood_stops_no_other(crew: Crew) -> None:
    ids = crew.bury(2)
    odd = crew.start().changed(order={"select": "?"})
    crew.parts.jobs.replace(crew.jobs().get(odd.id), odd)
    good = crew.start()

    crew.background_work().step(until=crew.clock.now() + timedelta(seconds=1))

    assert crew.jobs().get(good.id).state is JobState.DONE
    assert crew.waiting(ids) == ids
    assert [where for where, _ in crew.world.told.errors] == [f"job {odd.id}"]
