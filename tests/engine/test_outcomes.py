"""However a handler ends, its attempt is recorded, and can be stored, read and shown."""

import json
import threading
from typing import Any, NoReturn

import pytest

from rdq_core import Outcome, Status, TaskContext
from rdq_core.domain.envelope import to_envelope
from rdq_core.domain.limits import MAX_MESSAGE_BYTES, MAX_STACK_BYTES
from tests.engine.world import World, raises


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Deadly(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


def circular() -> Exception:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    return first


ERRORS = {
    "a NUL": ValueError("a\x00b"),
    "a lone surrogate": ValueError("a\ud800b"),
    "ten megabytes": ValueError("é" * 5_000_000),
    "a __str__ that raises": Speechless(),
    "a __str__ that exits": Deadly(),
    "a circle of causes": circular(),
}


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_text_can_be_stored_and_the_task_ends_in_the_dlq(name: str) -> None:
    world = World(retry={"max_attempts": 2, "initial_backoff": "1s"})
    world.handler(raises(ERRORS[name]))
    task_id = world.submit()
    world.sweep()
    world.clock.advance("1m")
    assert world.sweep().dead_lettered == 1
    task = world.task(task_id)
    assert [attempt.outcome for attempt in task.attempts] == [Outcome.RETRYABLE_FAILURE] * 2
    for attempt in task.attempts:
        assert attempt.error is not None
        message, stack = attempt.error.message or "", attempt.error.stack or ""
        assert "\x00" not in message + stack
        assert len(message.encode()) <= MAX_MESSAGE_BYTES
        assert len(stack.encode()) <= MAX_STACK_BYTES
    assert json.dumps(to_envelope(task)).isascii()
    assert world.told.errors == []


@pytest.mark.parametrize("crash", [SystemExit(1), KeyboardInterrupt()])
def test_what_would_end_a_program_ends_in_the_dlq_when_the_budget_is_spent(
    crash: BaseException,
) -> None:
    world = World(retry={"max_attempts": 3, "initial_backoff": "1s"})
    world.handler(raises(crash))
    task_id = world.submit()
    for _ in range(3):
        world.sweep()
        world.clock.advance("1m")
    assert world.task(task_id).status is Status.DEAD
    assert len(world.attempts(task_id)) == 3
    assert world.error(task_id).code == "task_handler_panicked"


@pytest.mark.parametrize("crash", [KeyError("4111"), SystemExit(1)])
def test_validation_that_raises_what_it_likes_is_the_attempt_s_failure(
    crash: BaseException,
) -> None:
    from pydantic import BaseModel, field_validator

    class Order(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def check(cls, _value: int) -> NoReturn:
            raise crash

    def handler(order: Order) -> None:
        raise AssertionError

    handler.__annotations__["order"] = Order
    world = World()
    world.registry.register("charge", handler)
    task_id = world.submit({"number": 1})
    assert world.sweep().rescheduled == 1
    assert world.error(task_id).type in ("KeyError", "rdq.HandlerCrashed")


def test_a_result_whose_serialisation_raises_is_a_permanent_failure() -> None:
    from pydantic import BaseModel, field_serializer

    class Receipt(BaseModel):
        number: int = 1

        @field_serializer("number")
        def broken(self, _value: int) -> int:
            raise SystemExit(1)

    world = World()
    world.handler(lambda _order: Receipt())
    task_id = world.submit()
    assert world.sweep().dead_lettered == 1
    assert world.error(task_id).code == "task_output_invalid"


def test_a_mapper_that_exits_is_the_failure() -> None:
    def mapper(_value: Any, _error: BaseException | None) -> NoReturn:
        raise SystemExit(1)

    world = World()
    world.handler(lambda _order: None, outcome=mapper)
    task_id = world.submit()
    assert world.sweep().rescheduled == 1
    assert world.error(task_id).code == "task_handler_panicked"


def test_async_and_sync_handlers_share_the_queue_s_concurrency() -> None:
    world = World(dispatch={"concurrency": 4})
    most, running, lock = [0], [0], threading.Lock()
    together = threading.Barrier(4)

    def work() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait(10)
        with lock:
            running[0] -= 1

    def plain(_order: str, ctx: TaskContext) -> None:
        work()

    async def coroutine(_order: str, ctx: TaskContext) -> None:
        work()

    world.handler(plain, "plain")
    world.handler(coroutine, "coroutine")
    for number in range(24):
        world.submit(ref="plain" if number % 2 else "coroutine")
    assert world.sweep().completed == 24
    assert most[0] == 4
