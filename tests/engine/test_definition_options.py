"""The options of a typed task rank below override and declaration, above the file's defaults."""

from datetime import timedelta
from typing import Any

import pytest

from rdq_core import Retry, Status, TaskContext, TaskDefinition, task
from rdq_core.config.stored import Override
from rdq_core.errors import ConfigInvalid
from tests.engine.world import QUEUE, World


def failing(**options: Any) -> TaskDefinition[Any, Any]:
    @task("work", queue=QUEUE, **options)
    def work(_order: str) -> None:
        raise ConnectionError("down")

    return work


def waits(world: World, definition: TaskDefinition[Any, Any], attempts: int) -> list[float]:
    """The seconds between the attempts of a task."""
    world.registry.add(definition)
    task_id = definition.submit(world.rdq, "order").id
    world.sweep()
    gaps = []
    for _ in range(attempts - 1):
        due = world.task(task_id).next_attempt_at
        assert due is not None
        gaps.append((due - world.clock.now()).total_seconds())
        world.clock.advance(due - world.clock.now())
        world.sweep()
    assert len(world.attempts(task_id)) == attempts
    return gaps


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [("fixed", [2, 2, 2, 2]), ("linear", [2, 4, 6, 7]), ("exponential", [2, 4, 7, 7])],
)
def test_growth_is_deterministic_and_capped(backoff: Any, expected: list[float]) -> None:
    retry = Retry(max_attempts=5, backoff=backoff, initial_backoff="2s", max_backoff="7s")
    assert waits(World(), failing(retry=retry), 5) == expected


def test_what_a_definitions_retry_does_not_give_comes_from_the_files_defaults() -> None:
    world = World()
    world.queues.put_declared(
        "other",
        {},
        {"retry": {"initial_backoff": "1h", "jitter": 0.9, "max_attempts": 9}},
        expected_revision=0,
    )
    options = failing(retry=Retry(max_attempts=3)).options
    retry = world.queues.settings("other", definition=options).retry
    assert (retry.max_attempts, retry.initial_backoff, retry.jitter) == (3, timedelta(hours=1), 0.9)


def test_what_is_declared_for_the_queue_wins_over_the_definition_key_by_key() -> None:
    world = World(retry={"initial_backoff": "9s"})
    assert waits(
        world, failing(retry=Retry(max_attempts=3, backoff="fixed", initial_backoff="2s")), 3
    ) == [9, 9]


def test_an_override_reaches_work_that_is_queued_under_a_definition() -> None:
    world = World()
    definition = failing(retry=Retry(max_attempts=5))
    world.registry.add(definition)
    task_id = definition.submit(world.rdq, "order").id
    override = Override(layer={"retry": {"max_attempts": 1}}, reason="incident")
    world.queues.put_override(QUEUE, override, expected_revision=0)
    world.sweep()
    assert world.task(task_id).status is Status.DEAD


def test_a_hosts_plain_handlers_know_nothing_of_other_definitions() -> None:
    world = World(retry={"max_attempts": 1})
    world.registry.add(failing(retry=Retry(max_attempts=5)))
    world.handler(lambda _order: None)
    task_id = world.submit()
    world.sweep()
    assert world.task(task_id).status is Status.SUCCEEDED


def test_the_timeout_of_a_definition_is_the_deadline_of_its_attempts() -> None:
    seen: list[timedelta] = []

    @task("work", queue=QUEUE, timeout="2m")
    def work(_order: str, ctx: TaskContext) -> None:
        seen.append(ctx.remaining())

    world = World()
    world.registry.add(work)
    work.submit(world.rdq, "order")
    world.sweep()
    assert seen == [timedelta(minutes=2)]


@pytest.mark.parametrize("attempt_fails", [True, False])
def test_retention_bounds_how_long_an_ended_task_stays(attempt_fails: bool) -> None:
    @task("work", queue=QUEUE, retention="2h", retry=Retry(max_attempts=1))
    def work(_order: str) -> None:
        if attempt_fails:
            raise ConnectionError("down")

    world = World()
    world.registry.add(work)
    task_id = work.submit(world.rdq, "order").id
    world.sweep()
    world.clock.advance("119m")
    assert world.store.get(task_id) is not None
    world.clock.advance("1m")
    assert world.store.get(task_id) is None


def test_options_that_contradict_what_is_declared_are_left_out_and_reported() -> None:
    world = World(execution={"heartbeat": "off"})

    @task("work", queue=QUEUE, timeout="2m")
    def work(_order: str) -> None: ...

    world.registry.add(work)
    task_id = work.submit(world.rdq, "order").id
    world.sweep()
    assert world.task(task_id).status is Status.SUCCEEDED
    ((where, error),) = world.told.errors
    assert (where, type(error)) == ("options of the typed task work", ConfigInvalid)


def test_a_suspended_override_leaves_the_definition_in_force() -> None:
    world = World()
    override = Override(
        layer={"execution": {"heartbeat": "off", "handler_timeout": "30s"}}, reason="incident"
    )
    world.queues.put_override(QUEUE, override, expected_revision=0)
    world.configure(execution={"lease": "20s"})
    options = failing(timeout="50s").options
    assert world.queues.settings(QUEUE, definition=options).execution.handler_timeout == timedelta(
        seconds=50
    )


def test_a_change_reaches_ten_queued_tasks_at_their_next_claim() -> None:
    world = World(retry={"max_attempts": 5, "initial_backoff": "1s", "jitter": 0.0})

    def fails(_order: str) -> None:
        raise ConnectionError("down")

    world.handler(fails)
    ids = [world.submit() for _ in range(10)]
    world.sweep()
    world.configure(index_shards=1, retry={"max_attempts": 2})
    world.clock.advance("1m")
    world.sweep()
    assert {world.task(task_id).status for task_id in ids} == {Status.DEAD}
