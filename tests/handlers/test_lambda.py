"""Handlers that are Lambda functions, called by a sweep: what they are sent, and what their answers
mean.
"""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.attempt import Code, Outcome
from rdq_core.domain.task import Status
from tests.engine.world import QUEUE
from tests.handlers.charge_fn import ORDER, PERMANENT, RETRYABLE, outcome, swept, world_with


class TestWhatIsSent:
    def test_a_raw_payload_is_the_event_unmodified_and_the_rest_rides_beside_it(self) -> None:
        world = world_with(b'{"receipt": 9}')
        headers = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "secret": "s3cret"}
        task_id = swept(world, headers=headers)

        (request,) = world.functions.requests
        assert (request["FunctionName"], request["InvocationType"]) == (
            "charge-fn",
            "RequestResponse",
        )
        assert request["Payload"] == ORDER
        assert world.functions.context() == {
            "task_id": task_id,
            "idempotency_key": task_id,
            "attempt_no": 1,
            "fencing_token": world.attempts(task_id)[0].fencing_token,
            "deadline": "2026-07-20T12:00:05.000Z",
            "traceparent": headers["traceparent"],
        }
        assert len(base64.b64decode(request["ClientContext"])) < 1024
        assert world.task(task_id).status is Status.SUCCEEDED
        assert world.rdq.result(task_id).output == {"receipt": 9}

    def test_an_answer_of_null_is_success_without_a_result(self) -> None:
        world = world_with(b"null")
        task_id = swept(world)
        assert (world.task(task_id).status, world.task(task_id).result) == (Status.SUCCEEDED, None)

    def test_a_payload_for_an_sqs_consumer_is_wrapped_as_one_record(self) -> None:
        world = world_with(answer="sqs")
        task_id = swept(world, "no JSON at all", content_type=None)
        (record,) = world.functions.event()["Records"]
        assert (record["messageId"], record["body"], record["eventSource"]) == (
            task_id,
            "no JSON at all",
            "aws:sqs",
        )

    def test_an_envelope_tells_the_task_and_its_payload(self) -> None:
        world = world_with(deliver="envelope")
        task_id = swept(world, b'{"order":17}', headers={"shop": "3"}, handler_version="v3")
        told = world.functions.event()["rdq"]
        assert (told["version"], told["attempt_no"], told["payload_json"]) == (1, 1, {"order": 17})
        assert told["deadline"] == "2026-07-20T12:00:05.000Z"
        assert told["task"]["id"] == task_id
        assert (told["task"]["handler_version"], told["task"]["headers"]["shop"]) == ("v3", "3")

    @pytest.mark.parametrize(
        ("payload", "content_type", "expected"),
        [
            (b"abc", "text/plain", {"payload_text": "abc"}),
            (b"\xff\x00", "application/octet-stream", {"payload_base64": "/wA="}),
            (b"\xff", "text/plain", {"payload_base64": "/w=="}),
            (
                b'{"a": 1}',
                "application/json",
                {"payload_json": {"a": 1}, "payload_base64": "eyJhIjogMX0="},
            ),
        ],
    )
    def test_a_payload_has_the_form_that_its_content_type_says(
        self, payload: bytes, content_type: str, expected: dict[str, Any]
    ) -> None:
        world = world_with(deliver="envelope")
        swept(world, payload, content_type=content_type)
        told = world.functions.event()["rdq"]
        assert {
            name: value for name, value in told.items() if name.startswith("payload")
        } == expected

    @pytest.mark.parametrize("payload", [b"", b"{", b"NaN", b"\xff"])
    def test_what_is_not_json_is_never_sent_raw(self, payload: bytes) -> None:
        world = world_with()
        task_id = swept(world, payload)
        assert outcome(world, task_id) == (PERMANENT, Code.INPUT_INVALID, "rdq.InputInvalid")
        assert world.functions.requests == []

    def test_the_hosts_own_registry_comes_first(self) -> None:
        world = world_with()
        world.handler(lambda _order: "here")
        assert world.rdq.result(swept(world)).output == "here"
        assert world.functions.requests == []

    def test_a_ref_that_nobody_has_is_unroutable(self) -> None:
        world = world_with()
        task_id = swept(world, ref="unknown")
        assert outcome(world, task_id) == (PERMANENT, Code.NOT_REGISTERED, "rdq.Unroutable")

    def test_a_pinned_version_is_compared_with_the_functions(self) -> None:
        world = world_with(handler_version="v2", queue={"version_mismatch": "dead-letter"})
        task_id = swept(world, handler_version="v1")
        assert outcome(world, task_id) == (
            PERMANENT,
            Code.VERSION_MISMATCH,
            "rdq.HandlerVersionMismatch",
        )


ANSWERS: dict[str, tuple[dict[str, Any], object, Outcome | None, str]] = {
    "any plain answer": ({}, {"statusCode": 200}, None, ""),
    "a listed success": ({"outcome": "status"}, {"status": "OK"}, None, ""),
    "a listed retryable": (
        {"outcome": "status"},
        {"status": "LATER"},
        RETRYABLE,
        "rdq.Answer.LATER",
    ),
    "a listed permanent": (
        {"outcome": "status"},
        {"status": "FAILED"},
        PERMANENT,
        "rdq.Answer.FAILED",
    ),
    "an unlisted value": (
        {"outcome": "status"},
        {"status": "s3cret"},
        RETRYABLE,
        "rdq.OutcomeUnknown",
    ),
    "a missing field": ({"outcome": "status"}, {"state": "OK"}, RETRYABLE, "rdq.OutcomeUnknown"),
    "no object": ({"outcome": "status"}, "OK", RETRYABLE, "rdq.OutcomeUnknown"),
    "http 204": ({"answer": "http"}, {"statusCode": 204}, None, ""),
    "http 302": ({"answer": "http"}, {"statusCode": "302"}, None, ""),
    "http 400": ({"answer": "http"}, {"statusCode": 400, "body": "s3cret"}, PERMANENT, "http.400"),
    "http 408": ({"answer": "http"}, {"statusCode": 408}, RETRYABLE, "http.408"),
    "http 425": ({"answer": "http"}, {"statusCode": 425}, RETRYABLE, "http.425"),
    "http 429": ({"answer": "http"}, {"statusCode": 429}, RETRYABLE, "http.429"),
    "http 500": ({"answer": "http"}, {"statusCode": 500}, RETRYABLE, "http.500"),
    "http without a status": (
        {"answer": "http"},
        {"body": "s3cret"},
        RETRYABLE,
        "rdq.OutcomeUnknown",
    ),
    "http 700": ({"answer": "http"}, {"statusCode": 700}, RETRYABLE, "rdq.OutcomeUnknown"),
    "http true": ({"answer": "http"}, {"statusCode": True}, RETRYABLE, "rdq.OutcomeUnknown"),
    "an answer that is nested too deeply to be read": ({}, "deep", None, ""),
    "envelope result that is no number": (
        {"deliver": "envelope"},
        {"rdq": {"outcome": "SUCCESS", "result": float("nan")}},
        RETRYABLE,
        "rdq.OutcomeUnknown",
    ),
    "sqs with no failure": ({"answer": "sqs"}, {"batchItemFailures": []}, None, ""),
    "sqs that answers nothing": ({"answer": "sqs"}, None, None, ""),
    "sqs with a failure": (
        {"answer": "sqs"},
        {"batchItemFailures": [{"itemIdentifier": "s3cret"}]},
        RETRYABLE,
        "rdq.BatchItemFailure",
    ),
    "envelope with no word about rdq": ({"deliver": "envelope"}, {"done": True}, None, ""),
    "envelope success": (
        {"deliver": "envelope"},
        {"rdq": {"outcome": "SUCCESS", "result": 5}},
        None,
        "",
    ),
    "envelope retryable": (
        {"deliver": "envelope"},
        {"rdq": {"outcome": "RETRYABLE_FAILURE", "error": {"type": "Bank"}}},
        RETRYABLE,
        "Bank",
    ),
    "envelope permanent": (
        {"deliver": "envelope"},
        {"rdq": {"outcome": "PERMANENT_FAILURE", "error": {"type": "Bank"}}},
        PERMANENT,
        "Bank",
    ),
    "envelope error by the queue's globs": (
        {"deliver": "envelope"},
        {"rdq": {"error": {"type": "bank.Closed"}}},
        PERMANENT,
        "bank.Closed",
    ),
    "envelope outcome that nobody knows": (
        {"deliver": "envelope"},
        {"rdq": {"outcome": "s3cret"}},
        RETRYABLE,
        "rdq.OutcomeUnknown",
    ),
    "envelope result that is no base64": (
        {"deliver": "envelope"},
        {"rdq": {"outcome": "SUCCESS", "result_base64": "s3cret!"}},
        RETRYABLE,
        "rdq.OutcomeUnknown",
    ),
    "envelope result of a content type that can't be stored": (
        {"deliver": "envelope"},
        {"rdq": {"outcome": "SUCCESS", "result_base64": "", "result_content_type": "s3cret\ud800"}},
        RETRYABLE,
        "rdq.OutcomeUnknown",
    ),
    "envelope result of a content type that is too long": (
        {"deliver": "envelope"},
        {"rdq": {"outcome": "SUCCESS", "result_base64": "", "result_content_type": "s3cret" * 100}},
        RETRYABLE,
        "rdq.OutcomeUnknown",
    ),
    "envelope result that can't be stored": (
        {"deliver": "envelope"},
        {"rdq": {"outcome": "SUCCESS", "result": {"s3cret": "\ud800"}}},
        RETRYABLE,
        "rdq.OutcomeUnknown",
    ),
    "http with a status of very many digits": (
        {"answer": "http"},
        {"statusCode": "9" * 5000},
        RETRYABLE,
        "rdq.OutcomeUnknown",
    ),
}
LISTS = {"field": "status", "success": ["OK"], "retryable": ["LATER"], "permanent": ["FAILED"]}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_means_what_the_queue_says(name: str) -> None:
    target, answer, expected, kind = ANSWERS[name]
    if "outcome" in target:
        target = {**target, "outcome": LISTS}
    rules = {"classification": {"permanent": ["bank.*"]}}
    payload = b"[" * 100_000 if answer == "deep" else json.dumps(answer).encode()
    world = world_with(payload, queue=rules, **target)
    task_id = swept(world)
    if expected is None:
        assert world.task(task_id).status is Status.SUCCEEDED
    else:
        assert (outcome(world, task_id)[0], outcome(world, task_id)[2]) == (expected, kind)
    assert "s3cret" not in repr((world.attempts(task_id), world.told.events, world.told.errors))


class TestAnswers:
    def test_a_plain_answer_that_nests_without_end_is_success_as_any_other(self) -> None:
        world = world_with(b"[" * 100_000 + b"]" * 100_000)
        assert world.task(swept(world)).status is Status.SUCCEEDED

    @pytest.mark.parametrize("header", ["Retry-After", "retry-after"])
    def test_retry_after_is_honoured(self, header: str) -> None:
        world = world_with(
            json.dumps({"statusCode": 503, "headers": {header: "120"}}).encode(), answer="http"
        )
        task = world.task(swept(world))
        assert task.next_attempt_at == world.clock.now() + timedelta(seconds=120)

    def test_a_retry_after_that_is_no_delay_counts_as_none(self) -> None:
        world = world_with(
            json.dumps({"statusCode": 503, "headers": {"Retry-After": "soon"}}).encode(),
            answer="http",
        )
        assert outcome(world, swept(world))[2] == "http.503"

    def test_an_envelopes_error_is_kept_whole_and_its_delay_honoured(self) -> None:
        error = {
            "type": "Bank",
            "message": "closed",
            "code": "bank_closed",
            "detail": {"until": 9},
            "stack": "at a",
        }
        answer = {"rdq": {"outcome": "RETRYABLE_FAILURE", "error": error, "retry_after_ms": 60_000}}
        world = world_with(json.dumps(answer).encode(), deliver="envelope")
        task_id = swept(world)
        stored = world.error(task_id)
        assert (stored.type, stored.message, stored.code) == ("Bank", "closed", "bank_closed")
        assert (stored.detail, stored.stack) == ({"until": 9}, "at a")
        assert world.task(task_id).next_attempt_at == world.clock.now() + timedelta(minutes=1)

    @pytest.mark.parametrize(
        ("answer", "kind"),
        [({"statusCode": 500}, "http"), ({"batchItemFailures": [{"itemIdentifier": "1"}]}, "sqs")],
    )
    def test_a_plain_answer_that_looks_like_failure_is_success_with_a_warning_that_names_the_fix(
        self, answer: object, kind: str
    ) -> None:
        world = world_with(json.dumps(answer).encode(), json.dumps(answer).encode())
        assert world.task(swept(world)).status is Status.SUCCEEDED
        swept(world)
        ((_, warning),) = world.told.errors
        assert f"answer: {kind}" in str(warning)
        assert f"queues.{QUEUE}.handlers.charge.answer" in str(warning)
