"""What Lambda functions are handed: events of AWS's services, as recorded, and then not quite."""

import base64
import json
import random
from functools import cache
from typing import Any, Final

from rdq_core.client.lambda_handler import lambda_handler
from rdq_core.config.targets import Answer, Deliver, HandlerTarget, OutcomeField
from rdq_core.domain.envelope import to_envelope
from rdq_core.domain.ids import encode_id
from rdq_core.domain.times import format_time
from rdq_core.errors import RdqError
from rdq_core.handlers.aws_lambda.answers import looks_like_failure, read_answer
from rdq_core.handlers.aws_lambda.reports import reported_error
from rdq_core.runtime.cloudformation import CustomResource
from rdq_core.runtime.intake import IntakeFunction
from rdq_core.runtime.kicking import KickFunction
from rdq_core.runtime.operating import OpsFunction
from rdq_core.runtime.sweeping import SweepOrder
from rdq_core.testing.clock import NOON
from rdq_core.testing.contract.factories import a_task
from tests.functions.stage import Stage
from tests.fuzzing import operator_requests
from tests.fuzzing.mutation import of_bytes, of_data, of_item
from tests.support.events import event
from tests.support.functions import Context

_DECLARED: Final[tuple[Any, ...]] = (
    {
        "Config": {
            "config_version": "1",
            "queues": {"email": {"owner": "a", "retry": {"max_attempts": "3"}}},
        }
    },
    {"Text": "config_version: 1\nqueues:\n  email: {retry: {max_attempts: 7}}\n"},
)
_ROUTES: Final = '{"*": {"queue": "billing", "handler_ref": "charge"}}'
_DELIVERED: Final = (
    "sqs", "sqs_fifo", "lambda_dead_letter_queue", "on_failure_destination", "eventbridge",
    "scheduler", "schedule"
)  # fmt: skip


@cache
def _stage() -> Stage:
    return Stage({"RDQ_INTAKE_ROUTES": _ROUTES})


def _sendable(told: Any) -> Any:
    """As Lambda would hand it over: JSON, which has no NaN, and an end to its depth."""
    try:
        return json.loads(json.dumps(told, allow_nan=False))
    except (ValueError, RecursionError):
        return {}


def throw_delivery(dice: random.Random) -> Any:
    """What a source delivers to the intake."""
    return _sendable(of_data(dice, event(dice.choice(_DELIVERED))))


def take_in(told: Any) -> None:
    """It becomes tasks, or is refused."""
    if len(_stage().world.store._kept) > 300:
        _stage.cache_clear()
    IntakeFunction(_stage().host).take(told)


def throw_records(dice: random.Random) -> Any:
    """What the tasks table's stream delivers: records as DynamoDB makes them, of rows as nobody
    does, and then not.
    """
    told = event("dynamodb_stream")
    told["Records"] *= dice.choice((1, 3))
    for record in told["Records"]:
        images = record["dynamodb"]
        images |= {
            name: of_item(dice, images[name]) for name in ("NewImage", "OldImage") if name in images
        }
    return told if dice.random() < 0.5 else of_data(dice, told)


def kick(told: Any) -> None:
    """Sweeps are started, and what is gone is cleaned up."""
    KickFunction(_stage().host).kick(told)
    KickFunction(_stage().host).clean_up(told)


def throw_call(dice: random.Random) -> Any:
    """What the ops function is handed: requests as they are, and what a function URL delivers."""
    request = dice.choice(operator_requests.REQUESTS)
    if dice.random() < 0.4:
        return _sendable(of_data(dice, {**request, "principal": "ann"}))
    request = _sendable(of_data(dice, request)) if dice.random() < 0.3 else request
    call = event("function_url")
    body = json.dumps(request).encode()
    call["body"] = (
        of_bytes(dice, body).decode("utf-8", "surrogateescape")
        if dice.random() < 0.3
        else body.decode()
    )
    if dice.random() < 0.2:
        call |= {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    return _sendable(of_data(dice, call) if dice.random() < 0.5 else call)


def operate(call: Any) -> None:
    """It is answered, or told what is wrong with it; never that rdq has a bug."""
    answer = OpsFunction(operator_requests.parts()).answer(call)
    problem = answer.get("problem")
    if "statusCode" in answer and answer["statusCode"] != 200:
        problem = json.loads(answer["body"])
    if problem is not None:
        assert problem["status"] < 500, problem
        raise RdqError(problem["detail"], code=problem["code"])


def throw_deploy(dice: random.Random) -> Any:
    """What CloudFormation delivers."""
    told = {
        "RequestType": dice.choice(("Create", "Update", "Delete")),
        "ResponseURL": "https://cloudformation.example/answer",
        "StackId": "arn:aws:cloudformation:eu-central-1:123456789012:stack/shop/1",
        "LogicalResourceId": "Queues",
        "ResourceProperties": {"ServiceToken": "arn", **dice.choice(_DECLARED)},
        "OldResourceProperties": {"ServiceToken": "arn", **dice.choice(_DECLARED)},
    }
    return _sendable(of_data(dice, told))


def deploy(told: Any) -> None:
    """It is done, or told what is wrong with it; never that rdq has a bug."""
    sent: list[bytes] = []
    if isinstance(told, dict) and told.keys() >= {"ResponseURL", "RequestType"}:
        answer = CustomResource(
            operator_requests.parts(), send=lambda _url, body: sent.append(body)
        ).handle(told)
        assert [json.loads(each) for each in sent] == [answer]
        if answer["Status"] != "SUCCESS":
            assert "bug" not in answer["Reason"], answer["Reason"]
            raise RdqError(answer["Reason"])


def order_sweep(told: Any) -> None:
    """A part of the work is asked for."""
    SweepOrder.of(told)


def throw_task(dice: random.Random) -> Any:
    """What a sweeper sends to a function of the application."""
    task, claim = a_task(), {"task_id": encode_id(1), "queue": "billing", "token": "t"}
    facts = {
        "attempt_no": 1,
        "fencing_token": 5,
        "deadline": format_time(NOON),
        "payload_json": {"a": 1},
    }
    told = dice.choice(
        ({"version": 1, "task": to_envelope(task), **facts}, {"version": 1, "claim": claim})
    )
    return _sendable({"rdq": of_data(dice, told)})


def handle(event: Any) -> None:
    """It runs, or is refused."""
    world = _stage().world
    entry = lambda_handler(
        world.rdq, "charge", lambda _payload: None, machine=world.clock, end_process=_never
    )
    assert isinstance(entry(event, Context()), dict)


def throw_answer(dice: random.Random) -> tuple[int, bytes]:
    """What a function of the application answers."""
    answer = dice.choice(_ANSWERS)
    return dice.randrange(len(_TARGETS)), of_bytes(
        dice, json.dumps(_sendable(of_data(dice, answer))).encode()
    )


def read(given: tuple[int, bytes]) -> None:
    """It is success, or the failure that it says."""
    target, payload = given
    looks_like_failure(_TARGETS[target], payload)
    reported_error(payload)
    read_answer(_TARGETS[target], payload)


def _never(_code: int) -> None:
    raise AssertionError("nothing was left behind")


_TARGETS: Final = (
    *(HandlerTarget(function="f", answer=answer) for answer in Answer),
    HandlerTarget(
        function="f", outcome=OutcomeField(field="status", success=("OK",), permanent=("NO",))
    ),
    HandlerTarget(function="f", deliver=Deliver.ENVELOPE),
)
_ANSWERS: Final[tuple[Any, ...]] = (
    {"statusCode": 503, "headers": {"Retry-After": "5"}, "body": "x"},
    {"batchItemFailures": [{"itemIdentifier": "1"}]},
    {"status": "OK"},
    {
        "rdq": {
            "outcome": "RETRYABLE_FAILURE",
            "error": {"type": "E", "detail": {"a": 1}},
            "retry_after_ms": 5,
        }
    },
    {"rdq": {"outcome": "SUCCESS", "result_base64": "AA==", "result_content_type": "text/plain"}},
    {
        "errorType": "E",
        "errorMessage": "m",
        "stackTrace": ["a", {"path": "p"}],
        "cause": {"errorType": "C"},
    },
)
