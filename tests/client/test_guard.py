"""`guard`: what it answers, what it keeps, and that it never says success for work that wasn't
done.
"""

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from rdq_core import Abort, Deferred, Done, Outcome, Rdq, RetryAfter, Status
from rdq_core.errors import ConfigInvalid, InputInvalid, QueueNotFound, StoreFailed
from rdq_core.runtime.invocation import is_delivery
from rdq_core.stores.memory import MemoryStore
from rdq_core.testing.clock import SkipsSleep
from tests.engine.world import QUEUE, World, raises

ORDER = {"id": "7", "amount": 5}
BANK_DOWN = (ConnectionError, TimeoutError)


class Bank:
    """Fails with these errors in turn, then is paid."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, order: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return {"charged": order["amount"]}


def guarded(
    world: World, bank: Bank, **options: Any
) -> Callable[[dict[str, Any]], Done[dict[str, Any]] | Deferred]:
    def charge(order: dict[str, Any]) -> dict[str, Any]:
        return bank(order)

    return world.rdq.guard(QUEUE, "charge", on=BANK_DOWN, **options)(charge)


def down(times: int = 99) -> Bank:
    return Bank(*(ConnectionError("down") for _ in range(times)))


class Refuses(MemoryStore):
    """A store that can't be written to; it counts what it is asked."""

    asked = 0

    def submit(self, *_args: Any, **_options: Any) -> Any:
        self.asked += 1
        raise StoreFailed("storage did not answer", may_have_happened=True)


# -- outside of a delivery -------------------------------------------------------------------------


def test_a_call_that_succeeds_makes_no_request_and_no_sleep() -> None:
    world = World()
    unusable = SimpleNamespace()  # any use of it is an AttributeError
    sleeper = SkipsSleep(world.clock)
    world.rdq = Rdq(
        parts=dataclasses.replace(
            world.parts, store=unusable, queues=unusable, ids=unusable, idle=sleeper
        )
    )
    assert guarded(world, Bank(), key=lambda order: order["id"])(ORDER) == Done({"charged": 5})
    assert sleeper.slept == []


def test_a_call_that_keeps_failing_becomes_a_task_whose_first_attempts_are_its_failures() -> None:
    world, bank = World(), down()
    answer = guarded(world, bank, max_attempts=3, backoff="100ms", key=lambda order: order["id"])(
        ORDER
    )
    assert isinstance(answer, Deferred)
    stored = world.task(answer.id)
    assert (bank.calls, stored.status, stored.attempt_count) == (3, Status.PENDING, 0)
    assert (json.loads(stored.payload), stored.headers["rdq.key"]) == (ORDER, "7")
    assert [
        (attempt.attempt_no, attempt.outcome, attempt.fencing_token) for attempt in stored.attempts
    ] == [(number, Outcome.RETRYABLE_FAILURE, None) for number in (1, 2, 3)]
    first, second, third = stored.attempts
    assert first.error is not None
    assert (first.error.type, first.error.message) == ("ConnectionError", "down")
    assert second.started_at - (first.finished_at or first.started_at) == timedelta(
        milliseconds=100
    )
    assert third.started_at - (second.finished_at or second.started_at) == timedelta(
        milliseconds=200
    )
    assert ":" in str(first.worker)


def test_failures_before_the_submit_spend_no_budget() -> None:
    world = World(retry={"max_attempts": 1})
    answer = guarded(world, down(), max_attempts=3)(ORDER)
    world.handler(lambda _order: None)
    world.sweep()
    assert isinstance(answer, Deferred)
    assert [attempt.attempt_no for attempt in world.attempts(answer.id)] == [1, 2, 3, 4]
    assert world.task(answer.id).status is Status.SUCCEEDED


def test_a_failure_that_passes_in_this_process_leaves_no_trace() -> None:
    world = World()
    assert guarded(world, down(1), max_attempts=2)(ORDER) == Done({"charged": 5})
    assert world.store.counts(QUEUE).pending == 0


@pytest.mark.parametrize("error", [ValueError("no such card"), KeyError("x"), KeyboardInterrupt()])
def test_an_error_that_is_not_asked_for_is_raised(error: Any) -> None:
    world = World()
    with pytest.raises(type(error)):
        guarded(world, Bank(error))(ORDER)
    assert world.store.counts(QUEUE).pending == 0


def test_an_error_that_the_queue_calls_permanent_is_raised_and_not_tried_again() -> None:
    world, bank = (
        World(classification={"permanent": ["ConnectionRefused*"]}),
        Bank(ConnectionRefusedError("no")),
    )
    with pytest.raises(ConnectionRefusedError):
        guarded(world, bank, max_attempts=3)(ORDER)
    assert (bank.calls, world.store.counts(QUEUE).pending) == (1, 0)


def test_an_error_with_a_permanent_cause_is_raised() -> None:
    error = ConnectionError("refused")
    error.__cause__ = Abort("card_declined")
    with pytest.raises(ConnectionError):
        guarded(World(), Bank(error))(ORDER)


def test_classes_that_the_registry_calls_permanent_are_raised_where_rdq_knows_it() -> None:
    world = World()
    world.registry.classify(ConnectionError, "permanent")
    world.rdq = Rdq(parts=world.parts, registry=world.registry)
    with pytest.raises(ConnectionError):
        guarded(world, down())(ORDER)


def test_a_retry_after_is_kept_at_once_and_not_before_its_time() -> None:
    world, bank = World(), Bank(RetryAfter("2m", "slow_down"))

    def charge(order: dict[str, Any]) -> dict[str, Any]:
        return bank(order)

    answer = world.rdq.guard(QUEUE, "charge", on=RetryAfter, max_attempts=5)(charge)(ORDER)
    assert isinstance(answer, Deferred)
    assert world.task(answer.id).next_attempt_at == world.clock.now() + timedelta(minutes=2)
    assert (bank.calls, world.attempts(answer.id)[0].error.code) == (1, "slow_down")  # type: ignore[union-attr]


def test_a_submit_that_fails_is_raised_from_the_error() -> None:
    world = World()
    store = Refuses(clock=world.clock, ids=world.ids)
    world.rdq = Rdq(parts=dataclasses.replace(world.parts, store=store))
    with pytest.raises(StoreFailed) as failed:
        guarded(world, down())(ORDER)
    assert isinstance(failed.value.__cause__, ConnectionError)


def test_a_queue_that_is_not_configured_is_told_from_the_error() -> None:
    def charge(_order: str) -> None:
        raise ConnectionError

    with pytest.raises(QueueNotFound) as failed:
        World().rdq.guard("unknown", "charge", on=ConnectionError)(charge)("7")
    assert isinstance(failed.value.__cause__, ConnectionError)


def test_the_task_keeps_the_argument_as_it_was_before_the_call() -> None:
    world = World()

    def charge(order: dict[str, Any]) -> None:
        order["id"] = "spoilt"
        raise ConnectionError

    key = world.rdq.guard(QUEUE, "charge", on=ConnectionError, key=lambda order: order["id"])
    answer = key(charge)({"id": "7"})
    assert isinstance(answer, Deferred)
    assert world.rdq.get(queue=QUEUE, key="7").payload == b'{"id":"7"}'


def test_an_argument_that_cannot_be_kept_is_refused_before_the_call() -> None:
    bank = Bank()
    with pytest.raises(InputInvalid):
        guarded(World(), bank)({"id": {1, 2}})
    assert bank.calls == 0


def test_payload_says_what_of_many_arguments_is_kept() -> None:
    world = World()

    def charge(order: str, amount: int, *, currency: str) -> None:
        raise TimeoutError

    guard = world.rdq.guard(
        QUEUE,
        "charge",
        on=TimeoutError,
        payload=lambda order, amount, currency: [order, amount, currency],
    )
    answer = guard(charge)("7", 5, currency="EUR")
    assert isinstance(answer, Deferred)
    assert world.task(answer.id).payload == b'["7",5,"EUR"]'


def two(a: int, b: int) -> None: ...
def none() -> None: ...
def many(*orders: int) -> None: ...
async def later(order: int) -> None: ...


@pytest.mark.parametrize("function", [two, none, many, later])
def test_a_function_whose_payload_is_not_clear_is_refused_when_it_is_guarded(function: Any) -> None:
    with pytest.raises(ConfigInvalid, match=r"guard\.charge"):
        World().rdq.guard(QUEUE, "charge", on=ConnectionError)(function)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"on": ()}, "guard.on"),
        ({"on": "ConnectionError"}, "guard.on"),
        ({"on": (KeyboardInterrupt,)}, "guard.on"),
        ({"on": OSError, "max_attempts": 0}, "guard.max_attempts"),
        ({"on": OSError, "backoff": "5"}, "guard.backoff"),
        ({"on": ConnectionError, "key": "order-7"}, "guard.key"),
        ({"on": ConnectionError, "payload": {"id": "7"}}, "guard.payload"),
    ],
)
def test_a_guard_that_makes_no_sense_is_refused(options: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        World().rdq.guard(QUEUE, "charge", **options)
    assert refusal.value.path == path


# -- the same key, stored already ------------------------------------------------------------------


def stored_in(world: World, state: str) -> str:
    """The task of order 7, brought into a state."""
    task_id = world.rdq.submit(QUEUE, "charge", ORDER, key="7").id
    if state == "CANCELLED":
        world.rdq.cancel(task_id)
    elif state != "PENDING":
        world.handler(raises(Abort("no")) if state == "DEAD" else (lambda _order: None))
        world.sweep()
    assert world.task(task_id).status == state
    return task_id


@pytest.mark.parametrize("state", ["PENDING", "SUCCEEDED"])
def test_a_task_that_does_or_has_done_the_work_is_answered(state: str) -> None:
    world = World()
    task_id = stored_in(world, state)
    assert guarded(world, down(), key=lambda order: order["id"])(ORDER) == Deferred(task_id)


@pytest.mark.parametrize("state", ["DEAD", "CANCELLED"])
def test_a_task_that_will_not_do_the_work_is_no_answer(state: str) -> None:
    world = World()
    stored_in(world, state)
    with pytest.raises(ConnectionError):
        guarded(world, down(), key=lambda order: order["id"])(ORDER)


def test_a_guard_that_finds_its_task_being_run_raises() -> None:
    world = World()
    charge = guarded(world, down(), key=lambda order: order["id"])

    def in_a_thread_that_does_not_know(order: str) -> None:
        raised: list[BaseException] = []

        def call() -> None:
            try:
                charge(json.loads(order))
            except ConnectionError as error:
                raised.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        raise raised[0]

    world.handler(in_a_thread_that_does_not_know)
    task_id = world.rdq.submit(QUEUE, "charge", ORDER, key="7").id
    assert world.sweep().rescheduled == 1
    assert world.error(task_id).type == "ConnectionError"


# -- inside a delivery -----------------------------------------------------------------------------


def test_a_function_that_is_its_own_handler_fails_its_task_and_makes_no_other_one() -> None:
    world, bank = World(), down(1)
    charge = guarded(world, bank, max_attempts=3)
    world.registry.register("charge", charge)
    task_id = world.submit(ORDER)
    assert world.sweep().rescheduled == 1
    assert (bank.calls, world.store.counts(QUEUE).pending) == (1, 1)
    assert world.error(task_id).type == "ConnectionError"


def test_a_function_that_is_its_own_handler_stores_its_value_as_the_result() -> None:
    world = World()
    world.registry.register("charge", guarded(world, Bank()))
    task_id = world.submit(ORDER)
    world.sweep()
    assert world.rdq.result(task_id).output == {"charged": 5}


def test_a_deferred_task_is_worked_off_by_the_very_function_that_was_guarded() -> None:
    world, bank = World(), down(2)
    charge = guarded(world, bank, max_attempts=1)
    world.registry.register("charge", charge)
    answer = charge(ORDER)
    assert isinstance(answer, Deferred)
    world.sweep()
    world.clock.advance("1m")
    world.sweep()
    assert [attempt.outcome for attempt in world.attempts(answer.id)] == [
        Outcome.RETRYABLE_FAILURE,
        Outcome.RETRYABLE_FAILURE,
        Outcome.SUCCESS,
    ]


def test_a_guard_deep_below_an_async_handler_is_transparent_too() -> None:
    world = World()
    charge = guarded(world, down())

    async def handler(order: dict[str, Any]) -> None:
        charge(order)

    world.handler(handler)
    world.submit(ORDER)
    world.sweep()
    assert world.store.counts(QUEUE).pending == 1


def test_a_handler_that_answers_deferred_has_not_succeeded() -> None:
    world = World()
    world.handler(lambda _order: Deferred("0" * 26))
    task_id = world.submit()
    assert world.sweep().rescheduled == 1
    assert (world.error(task_id).code, world.error(task_id).type) == (
        "task_outcome_unknown",
        "rdq.OutcomeUnknown",
    )


# -- in a Lambda invocation ------------------------------------------------------------------------


class LambdaContext:
    """What Lambda gives a function, with as much time as the test says."""

    function_name = "payments-charge"
    aws_request_id = "request-1"

    def __init__(self, seconds: float = 60, custom: dict[str, Any] | None = None) -> None:
        self._millis = int(seconds * 1000)
        self.client_context = None if custom is None else SimpleNamespace(custom=custom)

    def get_remaining_time_in_millis(self) -> int:
        return self._millis


DELIVERED = {"rdq": {"task_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}}


def a_function(
    world: World, bank: Bank, **options: Any
) -> Iterator[Callable[[Any, LambdaContext], Any]]:
    """A Lambda function that is guarded itself, and one that calls a guarded function."""

    def itself(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        return bank(event)

    charge = guarded(world, bank, **options)

    def calls(event: dict[str, Any], context: LambdaContext) -> Any:
        return charge(event)

    yield world.rdq.guard(QUEUE, "charge", on=BANK_DOWN, **options)(itself)
    yield calls


@pytest.mark.parametrize("index", [0, 1])
def test_a_raw_target_that_guards_its_own_work_raises(index: int) -> None:
    world, bank = World(), down()
    function = list(a_function(world, bank, max_attempts=3))[index]
    with pytest.raises(ConnectionError):
        function(ORDER, LambdaContext(custom=DELIVERED))
    assert (bank.calls, world.store.counts(QUEUE).pending) == (1, 0)


@pytest.mark.parametrize("index", [0, 1])
def test_tries_in_this_process_end_when_the_lambdas_time_gets_short(index: int) -> None:
    world, bank = World(), down()
    function = list(a_function(world, bank, max_attempts=9, backoff="5s"))[index]
    answer = function(ORDER, LambdaContext(seconds=15))
    assert isinstance(answer, Deferred)
    assert bank.calls == 3
    assert world.attempts(answer.id)[0].worker == "lambda:payments-charge/request-1"


def test_a_delivery_is_known_by_its_mark_in_the_client_context() -> None:
    assert is_delivery(LambdaContext(custom=DELIVERED))
    assert not is_delivery(LambdaContext(custom={"other": 1}))
    assert not is_delivery(LambdaContext())
    assert not is_delivery(None)
