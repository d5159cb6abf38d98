"""Jobs that sweeps advance in the background, while operators pause and cancel them."""

import subprocess
import sys
from dataclasses import replace
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
from tests.ops.dlq import ALL, ANN, Dlq


@pytest.fixture
def dlq() -> Dlq:
    return Dlq()


class Ticking:
    """A clock that advances ten milliseconds with each reading, so that a loop which only reads it
    ends.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.looks = 0

    def now(self) -> datetime:
        self.looks += 1
        return self._clock.now() + timedelta(milliseconds=10 * self.looks)

    def monotonic(self) -> float:
        return self._clock.monotonic()


def test_a_job_that_is_paused_while_a_sweep_advances_it_is_left_alone(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq.fill(6)
    job, parts, replaced = dlq.start(), dlq.parts, dlq.parts.jobs.replace
    pauses, clock = iter([True]), Ticking(dlq.clock)

    def written(*versions: Any) -> bool:
        if next(pauses, False):
            dlq.jobs().pause(job.id)
        return replaced(*versions)

    monkeypatch.setattr(parts.jobs, "replace", written)
    background_work = BackgroundJobs(replace(parts, clock=clock), at_once=1)
    assert background_work.step(until=dlq.clock.now() + timedelta(seconds=10)) is None
    assert dlq.jobs().get(job.id).state is JobState.PAUSED
    assert clock.looks < 10


def test_a_sweep_takes_open_jobs_on_and_stays_for_their_next_pages(dlq: Dlq) -> None:
    ids = dlq.fill(7)
    dlq.world.handler(lambda _order: None, ref="charge-card")
    job = dlq.start()

    dlq.world.sweep(SweepLimits(horizon=timedelta(seconds=5)))

    assert dlq.jobs().get(job.id).state is JobState.DONE
    tasks = [dlq.store.get(task_id) for task_id in ids]
    assert [task.status for task in tasks if task] == [Status.SUCCEEDED] * 7


def test_a_host_that_has_found_no_job_looks_again_after_a_while(dlq: Dlq) -> None:
    background_work = dlq.background_work()
    assert background_work.step(until=dlq.clock.now() + timedelta(seconds=1)) is None
    dlq.fill(2)
    job = dlq.jobs().start(
        QUEUE, Order(operation=Operation.REDRIVE, selection=ALL), dlq.parts.auditor(ANN)
    )
    dlq.clock.advance("1s")
    assert background_work.step(until=dlq.clock.now() + timedelta(seconds=1)) is None
    assert dlq.jobs().get(job.id).state is JobState.OPEN

    dlq.clock.advance("15s")
    background_work.step(until=dlq.clock.now() + timedelta(seconds=1))

    assert dlq.jobs().get(job.id).state is JobState.DONE


def test_a_job_that_cannot_be_understood_stops_no_other(dlq: Dlq) -> None:
    ids = dlq.fill(2)
    odd = dlq.start().changed(order={"select": "?"})
    dlq.parts.jobs.replace(dlq.jobs().get(odd.id), odd)
    good = dlq.start()

    dlq.background_work().step(until=dlq.clock.now() + timedelta(seconds=1))

    assert dlq.jobs().get(good.id).state is JobState.DONE
    assert dlq.waiting(ids) == ids
    assert [where for where, _ in dlq.world.told.errors] == [f"job {odd.id}"]


PROGRAM = """
import sys
import rdq_core.runtime.sweepers
from rdq_core.ops.orders import Order
select = {"type": "*Timeout*", "since": "2026-07-20T12:00:00.000Z"}
assert Order.from_plain("dlq.purge", {"select": select, "rate": "1/s"}).selection.type
print("pydantic" in sys.modules)
"""


@pytest.mark.slow
def test_a_sweep_that_advances_a_stored_job_loads_no_pydantic() -> None:
    """Stored selections are read by the standard library alone: a cold start pays for imports."""
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "False\n"
