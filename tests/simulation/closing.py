"""Checks at the end of a run: everything stored can be read, and is what was promised."""

from typing import TYPE_CHECKING

from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep
from tests.simulation import auditing
from tests.simulation.process import at
from tests.simulation.queues import QUEUE
from tests.simulation.rows import Row
from tests.simulation.verdict import require
from tests.support.fake_dynamodb import FakeClient

if TYPE_CHECKING:
    from tests.simulation.world import World


def check(world: "World") -> None:
    """Read everything with a store of its own, on a network without faults. Raises Broken."""
    from tests.simulation.world import TABLES

    clock = FrozenClock(at(world.scheduler.now))
    store = DynamoTaskStore(
        FakeClient(world.database),
        TABLES,
        clock=clock,
        ids=world.names,
        jitter=NoJitter(),
        sleeper=SkipsSleep(clock),
        shards_ever=lambda queue: world.queues.settings(queue).shards_ever,
    )
    living = [
        row for row in world.rows() if not row.is_gone(world.history.seconds) and row.version == 1
    ]
    for row in living:
        _check_task(world, store, row)
        world.history.forgotten.check_end(row)
    auditing.check_end(world.database, world.audited)
    dead = {row.task_id for row in living if row.status == "DEAD"}
    listed = {entry.task_id for entry in store.dead(QUEUE, limit=500).items}
    require("the DLQ lists exactly what is dead", listed == dead, listed ^ dead)
    missing = {task_id for task_id, _ in world.history.lives} - {
        row.task_id for row in world.rows()
    }
    gone = missing - world.history.gone
    require("no task is lost", not gone, gone)


def _check_task(world: "World", store: DynamoTaskStore, row: Row) -> None:
    task = store.get(row.task_id)
    assert task is not None
    numbers = [attempt.attempt_no for attempt in task.attempts]
    require(
        "attempts are numbered without a gap",
        numbers == list(range(1, len(numbers) + 1)),
        row.task_id,
    )
    require(
        "the payload stays", task.payload == world.history.lives[row.task_id, row.life], row.task_id
    )
    if row.status == "SUCCEEDED":
        right = task.result is not None and task.result.startswith(b"done %d" % row.fence)
        require("the result is that of the run that succeeded", right, row.task_id)
