"""`sqs_consumer`: messages whose handling fails become tasks, and nothing is acknowledged that is
neither.
"""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rdq_core import Abort, Outcome, Rdq, Status, TaskContext, sqs_consumer
from rdq_core.domain.ids import derive_id
from rdq_core.errors import ConfigInvalid, InputInvalid, StoreFailed
from rdq_core.stores.memory import MemoryStore
from tests.engine.world import QUEUE, World, raises
from tests.support.events import event
from tests.support.functions import Context


def message(number: int, body: object = None, *, group: str | None = None) -> dict[str, Any]:
    """A message of its own, in a group of a FIFO queue if there is one."""
    record = json.loads(json.dumps(event("sqs" if group is None else "sqs_fifo")["Records"][0]))
    record["messageId"] = f"message-{number}"
    record["body"] = json.dumps({"order": number}) if body is None else body
    if group is not None:
        record["attributes"]["MessageGroupId"] = group
    return dict(record)


def batch(*records: dict[str, Any]) -> dict[str, Any]:
    return {"Records": list(records)}


def stays(answer: dict[str, Any]) -> list[str]:
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


class Picky:
    """A handler that fails for some orders, and remembers all that it was called with."""

    def __init__(self, *bad: int) -> None:
        self.bad = bad
        self.seen: list[int] = []

    def __call__(self, order: dict[str, int]) -> None:
        self.seen.append(order["order"])
        if order["order"] in self.bad:
            raise ConnectionError("bank down")


def test_what_is_handled_is_acknowledged_and_makes_no_request() -> None:
    world, handler, unusable = (
        World(),
        Picky(),
        SimpleNamespace(),
    )  # any use of it is an AttributeError
    rdq = Rdq(parts=replace(world.parts, store=unusable, queues=unusable))
    answer = sqs_consumer(rdq, QUEUE, "charge")(handler)(batch(message(1), message(2)), Context())
    assert (stays(answer), handler.seen) == ([], [1, 2])


def test_what_fails_becomes_a_task_with_its_failure_and_is_acknowledged() -> None:
    world, handler = World(), Picky(2)
    consume = sqs_consumer(world.rdq, QUEUE, "charge")(handler)
    assert stays(consume(batch(message(1), message(2), message(3)), Context())) == []
    stored = world.task(derive_id(QUEUE, "message-2"))
    (attempt,) = stored.attempts
    assert attempt.error is not None
    assert (stored.payload, stored.status, stored.attempt_count) == (
        b'{"order": 2}',
        Status.PENDING,
        0,
    )
    assert (attempt.outcome, attempt.error.type) == (Outcome.RETRYABLE_FAILURE, "ConnectionError")
    assert attempt.worker == f"lambda:charge-fn/{Context().aws_request_id}"
    assert stored.headers["shop"] == "3"
    assert stored.headers["rdq.source"] == "arn:aws:sqs:eu-central-1:123456789012:orders"
    assert world.store.counts(QUEUE).pending == 1


def test_the_same_function_is_the_tasks_handler() -> None:
    world, handler = World(), Picky(2)
    sqs_consumer(world.rdq, QUEUE, "charge")(handler)(batch(message(2)), Context())
    handler.bad = ()
    world.registry.register("charge", handler)
    world.sweep()
    stored = world.task(derive_id(QUEUE, "message-2"))
    assert (stored.status, [attempt.attempt_no for attempt in stored.attempts]) == (
        Status.SUCCEEDED,
        [1, 2],
    )


def test_a_message_that_comes_twice_is_one_task() -> None:
    world = World()
    consume = sqs_consumer(world.rdq, QUEUE, "charge")(Picky(2))
    consume(batch(message(2)), Context())
    consume(batch(message(2)), Context())
    assert world.store.counts(QUEUE).pending == 1


def test_a_body_that_does_not_fit_is_kept_for_people_to_see() -> None:
    world = World()
    sqs_consumer(world.rdq, QUEUE, "charge")(Picky())(batch(message(5, "no JSON")), Context())
    (attempt,) = world.task(derive_id(QUEUE, "message-5")).attempts
    assert attempt.error is not None
    assert attempt.error.type.endswith("InputInvalid")


def test_a_permanent_failure_is_kept_as_what_it_is() -> None:
    world = World()
    sqs_consumer(world.rdq, QUEUE, "charge")(raises(Abort("card_lost")))(
        batch(message(5)), Context()
    )
    (attempt,) = world.task(derive_id(QUEUE, "message-5")).attempts
    assert attempt.outcome is Outcome.PERMANENT_FAILURE


def test_what_cannot_be_stored_stays_in_sqs_and_its_neighbours_go_on() -> None:
    world, handler = World(), Picky(2)
    world.parts = replace(world.parts, store=_Refuses(clock=world.clock, ids=world.ids))
    consume = sqs_consumer(Rdq(parts=world.parts), QUEUE, "charge")(handler)
    assert stays(consume(batch(message(1), message(2), message(3)), Context())) == ["message-2"]
    assert handler.seen == [1, 2, 3]
    assert len(world.told.errors) == 1


@pytest.mark.parametrize("record", [{"messageId": "m"}, {"messageId": "m", "body": 5}])
def test_a_record_that_is_no_message_stays_and_its_neighbours_go_on(record: dict[str, Any]) -> None:
    world, handler = World(), Picky()
    consume = sqs_consumer(world.rdq, QUEUE, "charge")(handler)
    assert stays(consume(batch(record, message(1)), Context())) == ["m"]
    assert handler.seen == [1]


@pytest.mark.parametrize("record", [{"body": "no id"}, {"messageId": 5, "body": "1"}])
def test_what_has_no_id_cannot_stay_and_fails_no_whole_batch(record: dict[str, Any]) -> None:
    world, handler = World(), Picky()
    consume = sqs_consumer(world.rdq, QUEUE, "charge")(handler)
    assert stays(consume(batch(record, message(1)), Context())) == []
    assert (handler.seen, len(world.told.errors)) == ([1], 1)


def test_in_a_standard_queue_a_message_that_stays_keeps_back_none_of_its_tenants_others() -> None:
    world, picky = World(), Picky()
    records = [message(1, group="a"), message(2, group="a")]
    for record in records:
        record["eventSourceARN"] = "arn:aws:sqs:eu-central-1:123456789012:orders"
    del records[0]["body"]
    answer = sqs_consumer(world.rdq, QUEUE, "charge")(picky)(batch(*records), Context())
    assert (stays(answer), picky.seen) == (["message-1"], [2])


def test_nothing_of_a_fifo_group_is_handled_behind_a_message_of_it_that_stays() -> None:
    world, handler = World(), Picky(1)
    world.parts = replace(world.parts, store=_Refuses(clock=world.clock, ids=world.ids))
    consume = sqs_consumer(Rdq(parts=world.parts), QUEUE, "charge")(handler)
    records = [
        message(1, group="a"),
        message(2, group="b"),
        message(3, group="a"),
        message(4, group="b"),
    ]
    assert stays(consume(batch(*records), Context())) == ["message-1", "message-3"]
    assert handler.seen == [1, 2, 4]


def test_the_tasks_of_a_fifo_group_have_its_key() -> None:
    world = World()
    sqs_consumer(world.rdq, QUEUE, "charge")(Picky(1))(batch(message(1, group="ann")), Context())
    assert world.task(derive_id(QUEUE, "message-1")).concurrency_key == "ann"


def test_without_time_for_another_one_messages_stay() -> None:
    handler = Picky()
    consume = sqs_consumer(World().rdq, QUEUE, "charge")(handler)
    assert stays(consume(batch(message(1)), Context(seconds=4))) == ["message-1"]
    assert handler.seen == []


def test_a_handler_may_take_a_context_whose_key_is_the_tasks_to_be() -> None:
    seen: list[str] = []

    def handler(_order: dict[str, int], ctx: TaskContext) -> None:
        seen.append(ctx.idempotency_key)

    sqs_consumer(World().rdq, QUEUE, "charge")(handler)(batch(message(1)), Context())
    assert seen == [derive_id(QUEUE, "message-1")]


def test_an_async_function_is_refused() -> None:
    async def handler(_order: dict[str, int]) -> None:
        """Nothing."""

    with pytest.raises(ConfigInvalid, match="plain functions"):
        sqs_consumer(World().rdq, QUEUE, "charge")(handler)


class _Refuses(MemoryStore):
    def submit(self, *_args: Any, **_options: Any) -> Any:
        raise StoreFailed("storage did not answer", may_have_happened=True)


@pytest.mark.parametrize(
    "given", [{"order": 1}, {"Records": None}, {"Records": [{"s3": {}}]}, [], None]
)
def test_an_event_that_is_not_of_sqs_is_refused_by_name(given: Any) -> None:
    consume = sqs_consumer(World().rdq, QUEUE, "charge")(Picky())
    with pytest.raises(InputInvalid, match="event: is not SQS's"):
        consume(given, None)
