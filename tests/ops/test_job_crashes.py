"""A job is killed at each of its storage calls in turn, before and after it is carried out, and
others go on with it.

The tables are the strict double's. Killed is killed: the exception is none that anybody catches.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rdq_core.domain.job import Job, JobState
from rdq_core.engine.ports import Phase
from rdq_core.ops.orders import Operation, Order
from rdq_core.runtime.wiring import Parts
from tests.engine.world import World
from tests.ops.dlq import ANN, Dlq, an_order, by_type
from tests.support.engines import Double
from tests.support.fake_dynamodb import Database, FakeClient
from tests.support.stores import Dynamo, dynamo_on

DEAD = 5
FOREIGN = 2


class Killed(BaseException):
    """The process is gone."""


class Mortal(FakeClient):
    """A client whose process dies at its `dies_at`th request: before it is carried out, or right
    after.
    """

    def __init__(self, database: Database, *, dies_at: int = 0, carried_out: bool = False) -> None:
        super().__init__(database)
        self.requests = 0
        self._dies_at = dies_at
        self._carried_out = carried_out

    def _call(self, operation: str, request: dict[str, Any]) -> Any:
        self.requests += 1
        if self.requests == self._dies_at and not self._carried_out:
            raise Killed
        answer = super()._call(operation, request)
        if self.requests == self._dies_at:
            raise Killed
        return answer


class Scene:
    """Some tasks that a job is about, some that it isn't, and processes that may die."""

    def __init__(self) -> None:
        self.world = World()
        self.engine = Double("double")
        self.dynamo: Dynamo = replace(
            dynamo_on(self.engine), clock=self.world.clock, shards_ever=lambda _queue: 1
        )
        self.dlq = Dlq(self.world, self.process())
        self.meant = self.dlq.fill(DEAD, error_type="Bang")
        self.others = self.dlq.fill(FOREIGN)

    def process(self, client: Any = None) -> Parts:
        client = client or FakeClient(self.engine.database)
        return replace(
            self.world.parts,
            store=self.dynamo.store(client),
            jobs=self.dynamo.jobs(client),
            audit=self.dynamo.audit(client),
        )

    def mortal(self, **options: Any) -> Mortal:
        return Mortal(self.engine.database, **options)


def kill_it(scene: Scene, job: Job, client: Mortal) -> bool:
    """Whether the process died before the job was at its end."""
    try:
        scene.dlq.finish(job, scene.process(client))
    except Killed:
        return True
    return False


ORDERS = {
    "redrive": an_order(selection=by_type("Bang")),
    "purge": an_order(Operation.PURGE, selection=by_type("Bang")),
}


def deaths(order: Order) -> Iterator[tuple[int, bool]]:
    """Each request of a job's whole life, and whether it is carried out before the process dies."""
    scene = Scene()
    client = scene.mortal()
    assert not kill_it(scene, scene.dlq.start(order), client)
    for k in range(1, client.requests + 1):
        yield k, False
        yield k, True


def assert_done_once(scene: Scene, job: Job, order: Order) -> None:
    assert (job.state, job.selected, job.done, job.skipped, job.failed) == (
        JobState.DONE,
        DEAD,
        DEAD,
        0,
        0,
    )
    assert scene.dlq.dead_ids() == scene.others
    if order.operation is Operation.REDRIVE:
        assert scene.dlq.redrives(scene.meant) == dict.fromkeys(scene.meant, 1)
    else:
        assert [scene.dlq.store.get(task_id) for task_id in scene.meant] == [None] * DEAD
    assert [record.phase for record in scene.dlq.records()] == [Phase.INTENT, Phase.DONE]
    assert scene.dlq.parts.jobs.open_jobs() == []
    assert list(scene.dlq.parts.jobs.ended_jobs(limit=2)) == [job]


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_job_that_is_killed_anywhere_is_finished_by_others_and_does_nothing_twice(
    order: Order,
) -> None:
    tried = 0
    for k, carried_out in deaths(order):
        scene = Scene()
        job = scene.dlq.start(order)
        assert kill_it(scene, job, scene.mortal(dies_at=k, carried_out=carried_out))

        job = scene.dlq.finish(job)

        assert_done_once(scene, job, order)
        tried += 1
    assert tried > 2 * 3 * DEAD


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_host_that_takes_a_page_over_at_once_treats_no_task_twice(order: Order) -> None:
    for k, carried_out in deaths(order):
        scene = Scene()
        job = scene.dlq.start(order)
        kill_it(scene, job, scene.mortal(dies_at=k, carried_out=carried_out))

        scene.dlq.jobs().advance(job.id, take_over=True)

        assert_done_once(scene, scene.dlq.finish(scene.dlq.jobs().get(job.id)), order)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_job_that_is_cancelled_after_it_was_killed_counts_what_was_done_and_does_no_more(
    order: Order,
) -> None:
    for k, carried_out in deaths(order):
        scene = Scene()
        job = scene.dlq.start(order)
        kill_it(scene, job, scene.mortal(dies_at=k, carried_out=carried_out))
        left = set(scene.dlq.dead_ids())
        if scene.dlq.jobs().get(job.id).state.is_over:
            continue
        scene.dlq.jobs().cancel(job.id, scene.dlq.parts.auditor(ANN))

        job = scene.dlq.finish(scene.dlq.jobs().get(job.id))

        assert job.state is JobState.CANCELLED
        assert set(scene.dlq.dead_ids()) == left
        assert job.done == DEAD + FOREIGN - len(left)


def test_a_host_that_was_taken_for_dead_and_continues_treats_no_task_twice() -> None:
    """The page is taken over in the middle of each of its holder's requests."""
    order = ORDERS["redrive"]
    for k, carried_out in deaths(order):
        scene = Scene()
        job = scene.dlq.start(order)
        interrupted = Interrupted(scene, job, at=k, carried_out=carried_out)

        scene.dlq.finish(job, scene.process(interrupted))

        assert_done_once(scene, scene.dlq.finish(scene.dlq.jobs().get(job.id)), order)


class Interrupted(Mortal):
    """A client whose process stands still at a request while others take over its page and finish
    the job.
    """

    def __init__(self, scene: Scene, job: Job, *, at: int, carried_out: bool) -> None:
        super().__init__(scene.engine.database, dies_at=at, carried_out=carried_out)
        self._scene = scene
        self._job = job

    def _call(self, operation: str, request: dict[str, Any]) -> Any:
        try:
            return super()._call(operation, request)
        except Killed:
            self._dies_at = 0
            jobs = self._scene.dlq.jobs()
            jobs.advance(self._job.id, take_over=True)
            self._scene.dlq.finish(jobs.get(self._job.id))
            self.requests = 0
            return FakeClient._call(self, operation, request)
