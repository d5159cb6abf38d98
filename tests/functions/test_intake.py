"""The intake function: what each source delivers, and the task that it becomes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.ids import derive_id
from rdq_core.domain.task import Status, Task
from rdq_core.errors import ConfigInvalid, InputInvalid, QueueNotFound, StoreFailed
from rdq_core.runtime.intake import IntakeFunction
from rdq_core.stores.memory import MemoryStore
from tests.engine.world import QUEUE
from tests.functions.stage import Stage
from tests.support.events import event

ROUTES = json.dumps({"*": {"queue": QUEUE, "handler_ref": "charge"}})


class Intake(Stage):
    def __init__(self, routes: str = ROUTES) -> None:
        super().__init__({"RDQ_INTAKE_ROUTES": routes})

    def take(self, delivered: Any) -> dict[str, Any]:
        return IntakeFunction(self.host).take(delivered)

    def stored(self, key: str, queue: str = QUEUE) -> Task:
        return self.world.task(derive_id(queue, key))

    @property
    def waiting(self) -> int:
        return self.world.parts.store.counts(QUEUE).pending


def failures(answer: dict[str, Any]) -> list[str]:
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


def fifo(*names: str) -> dict[str, Any]:
    """A batch of a FIFO queue: a message of each name, which ends with its group."""
    (first,) = event("sqs_fifo")["Records"]
    records = [
        {
            **first,
            "messageId": name,
            "body": name,
            "attributes": {**first["attributes"], "MessageGroupId": name[-1]},
        }
        for name in names
    ]
    return {"Records": records}


class TestSqs:
    def test_each_message_becomes_a_task_with_its_attributes_as_headers(self) -> None:
        stage = Intake()
        assert stage.take(event("sqs")) == {"batchItemFailures": []}
        first = stage.stored("059f36b4-87a3-44ab-83d2-661975830a7d")
        assert (first.payload, first.payload_content_type, first.concurrency_key) == (
            b'{"order":17}',
            "application/json",
            None,
        )
        assert first.headers == {
            "shop": "3",
            "weight": "2.5",
            "rdq.source": "arn:aws:sqs:eu-central-1:123456789012:orders",
            "rdq.key": "059f36b4-87a3-44ab-83d2-661975830a7d",
        }
        second = stage.stored("2e1424d4-f796-459a-8184-9c92662be6da")
        assert (second.payload, second.payload_content_type) == (
            b"plain text",
            "text/plain; charset=utf-8",
        )

    def test_the_same_batch_twice_is_one_task_a_message(self) -> None:
        stage = Intake()
        stage.take(event("sqs"))
        assert stage.take(event("sqs")) == {"batchItemFailures": []}
        assert stage.waiting == 2

    def test_a_group_of_a_fifo_queue_is_the_concurrency_key(self) -> None:
        stage = Intake()
        stage.take(event("sqs_fifo"))
        assert stage.stored("11d6ee51-4cc7-4302-9e22-7cd8afdaadf5").concurrency_key == "customer-1"

    def test_tasks_of_a_group_are_stored_one_after_the_other_in_its_order(self) -> None:
        stage, stored = Intake(), []

        class Notes(MemoryStore):
            def submit_many(self, tasks: Sequence[Task], **options: Any) -> Any:
                stored.append([task.payload.decode() for task in tasks])
                return super().submit_many(tasks, **options)

        store = Notes(clock=stage.world.clock, ids=stage.world.ids)
        stage.host = replace(stage.host, parts=replace(stage.world.parts, store=store))
        assert failures(stage.take(fifo("1a", "2b", "3a"))) == []
        assert stored == [["1a"], ["2b"], ["3a"]]

    @pytest.mark.parametrize("body", [None, 5])
    def test_behind_a_message_that_stays_those_of_its_fifo_group_stay_too(
        self, body: object
    ) -> None:
        stage, batch = Intake(), fifo("1a", "2a", "3b", "4a", "5b")
        batch["Records"][1]["body"] = body
        assert failures(stage.take(batch)) == ["2a", "4a"]
        assert stage.waiting == 3
        assert len(stage.world.told.errors) == 1

    @pytest.mark.parametrize(
        "bad",
        [
            {"messageId": "bad"},
            {"messageId": "bad", "body": 5},
            {"messageId": "bad", "body": "\ud800"},
        ],
    )
    def test_a_malformed_record_stays_and_never_fails_its_neighbours(
        self, bad: dict[str, Any]
    ) -> None:
        stage, batch = Intake(), event("sqs")
        batch["Records"].insert(1, bad)
        assert failures(stage.take(batch)) == ["bad"]
        assert stage.waiting == 2
        assert len(stage.world.told.errors) == 1

    @pytest.mark.parametrize("bad", [None, 5, {"body": "no id"}])
    def test_what_has_no_id_cannot_stay_and_is_reported(self, bad: object) -> None:
        stage, batch = Intake(), event("sqs")
        batch["Records"].insert(1, bad)
        assert stage.take(batch) == {"batchItemFailures": []}
        assert (stage.waiting, len(stage.world.told.errors)) == (2, 1)

    @pytest.mark.parametrize(
        "record",
        [
            {"eventSource": "aws:s3", "s3": {}},
            {"EventSource": "aws:sns", "Sns": {"Message": "x"}},
            None,
        ],
    )
    def test_a_batch_of_another_service_is_refused_for_its_sender_to_keep(
        self, record: object
    ) -> None:
        with pytest.raises(InputInvalid, match="is not SQS's"):
            Intake().take({"Records": [record]})

    def test_a_message_of_a_source_without_a_route_stays(self) -> None:
        stage = Intake(
            json.dumps(
                {"arn:aws:sqs:eu-central-1:123456789012:others": {"queue": "q", "handler_ref": "h"}}
            )
        )
        assert len(failures(stage.take(event("sqs")))) == 2
        assert stage.waiting == 0

    def test_routes_are_found_by_source(self) -> None:
        arn = "arn:aws:sqs:eu-central-1:123456789012:orders"
        stage = Intake(
            json.dumps(
                {
                    arn: {"queue": QUEUE, "handler_ref": "ship"},
                    "*": {"queue": "q", "handler_ref": "h"},
                }
            )
        )
        stage.take(event("sqs"))
        assert stage.stored("059f36b4-87a3-44ab-83d2-661975830a7d").handler_ref == "ship"

    def test_what_cannot_be_stored_stays(self) -> None:
        stage = Intake()
        broken = _Refuses(clock=stage.world.clock, ids=stage.world.ids)
        stage.host = replace(stage.host, parts=replace(stage.world.parts, store=broken))
        assert len(failures(stage.take(event("sqs")))) == 2

    def test_no_payload_is_in_a_reported_refusal(self) -> None:
        stage, batch = (
            Intake(json.dumps({"*": {"queue": "unknown", "handler_ref": "h"}})),
            event("sqs"),
        )
        stage.take(batch)
        assert "order" not in repr(stage.world.told.errors).replace("orders", "")
        assert "plain text" not in repr(stage.world.told.errors)


class TestDeadLetters:
    def test_a_message_of_lambdas_dead_letter_queue_has_its_original_body_and_the_error(
        self,
    ) -> None:
        stage = Intake()
        stage.take(event("lambda_dead_letter_queue"))
        stored = stage.stored("7b1f0a3e-5c39-4d3a-9f4e-0f1d4c1a9b7e")
        (attempt,) = stored.attempts
        assert attempt.error is not None
        assert stored.payload == b'{"order":17}'
        assert (attempt.error.type, attempt.error.message) == ("lambda.200", "the bank is down")
        assert (stored.attempt_count, attempt.fencing_token) == (0, None)

    def test_a_failed_invocation_is_its_event_with_the_error_as_first_attempt(self) -> None:
        stage = Intake()
        receipt = stage.take(event("on_failure_destination"))
        stored = stage.stored("e4b46cbf-b738-xmpl-8880-a18cdf61200e")
        (attempt,) = stored.attempts
        assert attempt.error is not None
        assert receipt == {"id": stored.id, "queue": QUEUE, "created": True}
        assert (stored.payload, stored.status) == (b'{"order":17}', Status.PENDING)
        assert (attempt.outcome, attempt.error.type) == (
            Outcome.RETRYABLE_FAILURE,
            "ConnectionError",
        )
        assert "charge.py" in str(attempt.error.stack)
        assert attempt.started_at == datetime(2026, 7, 20, 11, 58, tzinfo=UTC)
        assert stored.headers["rdq.source"].endswith(":function:charge:$LATEST")

    def test_a_function_may_be_routed_without_its_version(self) -> None:
        arn = "arn:aws:lambda:eu-central-1:123456789012:function:charge"
        stage = Intake(json.dumps({arn: {"queue": QUEUE, "handler_ref": "charge"}}))
        assert stage.take(event("on_failure_destination"))["created"]

    def test_one_that_never_ran_has_the_condition_as_its_error(self) -> None:
        stage, delivered = Intake(), event("on_failure_destination")
        delivered |= {"responsePayload": None, "responseContext": None, "timestamp": "?"}
        delivered["requestContext"]["condition"] = "EventAgeExceeded"
        (attempt,) = stage.world.task(stage.take(delivered)["id"]).attempts
        assert attempt.error is not None
        assert (attempt.error.type, attempt.started_at) == (
            "lambda.EventAgeExceeded",
            stage.world.clock.now(),
        )

    def test_the_same_failure_by_way_of_sqs_is_the_same_task(self) -> None:
        stage, batch = Intake(), event("sqs")
        batch["Records"] = batch["Records"][:1]
        batch["Records"][0]["body"] = json.dumps(event("on_failure_destination"))
        stage.take(event("on_failure_destination"))
        stage.take(batch)
        assert stage.waiting == 1


class TestSubmits:
    def test_a_scheduled_submit_is_stored_once(self) -> None:
        stage = Intake()
        first, second = stage.take(event("scheduler")), stage.take(event("scheduler"))
        assert (first["created"], second["created"], first["id"]) == (True, False, second["id"])
        assert stage.world.task(first["id"]).payload == b'{"order":17}'

    def test_a_submit_without_a_key_is_one_task_however_often_lambda_tries_its_invocation(
        self,
    ) -> None:
        stage, delivered = (
            Intake(),
            {"submit": {"queue": QUEUE, "handler_ref": "charge", "payload_text": "x"}},
        )
        intake = IntakeFunction(stage.host)
        first, again, other = (
            intake.take(delivered, request_id) for request_id in ("r-1", "r-1", "r-2")
        )
        assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])
        assert (other["created"], stage.waiting) == (True, 2)
        assert stage.world.task(first["id"]).headers == {}

    def test_a_plain_submit_may_have_every_field_of_a_task_object(self) -> None:
        stage = Intake()
        delivered = {
            "queue": QUEUE,
            "handler_ref": "charge",
            "payload_text": "x",
            "delay": "1h",
            "concurrency_key": "ann",
        }
        stored = stage.world.task(stage.take({"submit": delivered})["id"])
        assert (stored.payload, stored.concurrency_key) == (b"x", "ann")
        assert stored.next_attempt_at == stage.world.clock.now() + timedelta(hours=1)

    @pytest.mark.parametrize(
        "task",
        [{}, 5, {"queue": QUEUE, "handler_ref": "charge"}, {"queue": QUEUE, "payload_text": ""}],
    )
    def test_a_submit_that_is_wrong_is_raised(self, task: object) -> None:
        with pytest.raises(InputInvalid):
            Intake().take({"submit": task})

    def test_a_submit_to_an_unknown_queue_is_raised(self) -> None:
        with pytest.raises(QueueNotFound):
            Intake().take({"submit": {"queue": "unknown", "handler_ref": "h", "payload_text": ""}})

    def test_an_event_that_a_rule_matched_is_the_payload(self) -> None:
        stage = Intake()
        first = stage.take(event("eventbridge"))
        assert not stage.take(event("eventbridge"))["created"]
        assert json.loads(stage.world.task(first["id"]).payload) == event("eventbridge")

    @pytest.mark.parametrize("delivered", [None, [], {}, {"requestContext": {}}, 5])
    def test_an_event_of_an_unknown_source_is_refused(self, delivered: object) -> None:
        with pytest.raises(InputInvalid):
            Intake().take(delivered)


@pytest.mark.parametrize("routes", ["no JSON", "[]", "5", '{"*": {"queue": "q"}}', '{"*": 5}'])
def test_routes_that_cannot_be_read_are_refused_at_the_start(routes: str) -> None:
    with pytest.raises(ConfigInvalid, match="RDQ_INTAKE_ROUTES"):
        Intake(routes).take({})


class _Refuses(MemoryStore):
    def submit(self, *_args: Any, **_options: Any) -> Any:
        raise StoreFailed("storage did not answer", may_have_happened=True)
