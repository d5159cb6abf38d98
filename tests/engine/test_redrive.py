import pytest

from rdq_core import Abort, Status
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lifecycle import Edit
from rdq_core.engine.events import EventName
from rdq_core.errors import TaskConflict
from tests.engine.world import World, raises


def a_dead_task(world: World, **options: object) -> DeadEntry:
    task_id = world.submit(**options)  # type: ignore[arg-type]
    world.sweep()
    entry = world.store.dead_entry(task_id)
    assert entry is not None
    return entry


def test_a_redriven_task_is_due_now_with_a_full_budget_and_its_history() -> None:
    world = World()
    failures = [Abort("bad")]
    world.handler(lambda _order: raises(failures.pop())("") if failures else None)
    entry = a_dead_task(world)
    world.clock.advance("1h")
    task = world.parts.redriver().redrive(entry, op_id="op")
    assert (task.status, task.attempt_count, task.redrive_count, task.next_attempt_at) == (
        Status.PENDING,
        0,
        1,
        world.clock.now(),
    )
    assert world.sweep().completed == 1
    assert [attempt.attempt_no for attempt in world.attempts(entry.task_id)] == [1, 2]
    assert world.store.dead_entry(entry.task_id) is None


def test_an_edit_mends_a_misspelt_ref_and_drops_a_pin() -> None:
    world = World(version_mismatch="dead-letter")
    world.handler(lambda order: order, version="v3")
    entry = a_dead_task(world, ref="chrge", handler_version="v1")
    world.parts.redriver().redrive(
        entry, Edit(handler_ref="charge", unpin=True, payload=b"mended"), op_id="op"
    )
    assert world.sweep().completed == 1
    assert world.task(entry.task_id).result == b"mended"


def test_a_second_redrive_of_the_same_death_is_a_conflict() -> None:
    world = World()
    entry = a_dead_task(world)
    world.parts.redriver().redrive(entry, op_id="op")
    with pytest.raises(TaskConflict, match="PENDING"):
        world.parts.redriver().redrive(entry, op_id="op2")


def test_a_task_that_keeps_dying_is_not_redriven_for_ever_unless_forced() -> None:
    world = World(limits={"max_redrives": 1})
    entry = a_dead_task(world)
    world.parts.redriver().redrive(entry, op_id="op")
    world.sweep()
    again = world.store.dead_entry(entry.task_id)
    assert again is not None
    with pytest.raises(TaskConflict, match="redriven 1 times"):
        world.parts.redriver().redrive(again, op_id="op2")
    assert world.parts.redriver().redrive(again, op_id="op3", force=True).redrive_count == 2


def test_a_purged_task_is_removed_and_emits_an_event() -> None:
    world = World()
    entry = a_dead_task(world)
    world.parts.redriver().purge(entry, op_id="op")
    assert world.store.get(entry.task_id) is None
    assert world.told.names()[-1] is EventName.PURGED
