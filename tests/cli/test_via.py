"""`--via FUNCTION`: the same commands through the ops function, without access to the tables."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from rdq_core.runtime import remote
from rdq_core.runtime.operating import OpsFunction
from rdq_core.runtime.wiring import connect
from tests.cli.conftest import ANN, DeadLetter, Shell
from tests.cli.test_dlq import dead

Invoke = Callable[[Any], dict[str, Any]]


class Lambda:
    """Lambda's client, with one function."""

    def __init__(self, invoke: Invoke) -> None:
        self._invoke = invoke
        self.events: list[Any] = []

    # as boto3 has it
    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803
        if FunctionName != "ops":
            raise ClientError(
                {"Error": {"Code": "ResourceNotFoundException", "Message": ""}}, "Invoke"
            )
        self.events.append(json.loads(Payload))
        return self._invoke(self.events[-1])


def returned(document: Any) -> dict[str, Any]:
    return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(document).encode())}


@pytest.fixture
def through(rdq: Shell, monkeypatch: pytest.MonkeyPatch) -> Lambda:
    """The ops function on the tables that the commands know."""
    made = Lambda(lambda event: returned(OpsFunction(connect()).answer(event)))
    monkeypatch.setattr(remote, "lambda_client", lambda _seconds: made)
    return made


def refusing(error: Exception) -> Invoke:
    def invoke(_event: Any) -> dict[str, Any]:
        raise error

    return invoke


@pytest.mark.parametrize(
    "command",
    [
        ["queue", "get", "billing"],
        ["queue", "list"],
        ["queue", "ladder", "billing"],
        ["dlq", "list", "billing"],
        ["dlq", "groups"],
        ["dlq", "redrive", "billing", "--type", "none*", "--dry-run"],
        ["dlq", "list", "nope"],
        ["dlq", "list", "billing", "--cursor", "AAAA"],
        ["job", "list"],
        ["task", "list", "billing"],
        ["task", "get", "01J00000000000000000000000"],
        ["audit", "list"],
    ],
)
def test_a_command_answers_the_same_through_the_function(
    rdq: Shell, dead_letter: DeadLetter, through: Lambda, command: list[str]
) -> None:
    dead_letter()
    direct, via = rdq(*command, "--json"), rdq(*command, "--json", "--via", "ops")
    assert via == direct
    assert through.events


def test_a_redrive_is_followed_through_the_function(
    rdq: Shell, dead_letter: DeadLetter, through: Lambda
) -> None:
    for _ in range(3):
        dead_letter()
    answer = rdq(
        "dlq",
        "redrive",
        "billing",
        "--all",
        "--yes",
        "--reason",
        "mended",
        "--via",
        "ops",
        "--json",
    )
    assert (answer.code, answer.document["done"]) == (0, 3)
    assert dead(rdq) == []
    last = rdq("audit", "list", "billing", "--json").document["items"][0]
    assert (last["principal"], last["verified"], last["reason"]) == (ANN, False, "mended")


def test_a_queue_is_paused_through_the_function(rdq: Shell, through: Lambda) -> None:
    assert rdq("queue", "pause", "billing", "--reason", "r", "--via", "ops").code == 0
    assert rdq("queue", "stats", "billing", "--json").document["paused"]


def test_the_environment_may_name_the_function(
    rdq: Shell, through: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDQ_VIA", "ops")
    assert rdq("status", "--json").code == 0
    assert [event["op"] for event in through.events] == ["status"]


def test_through_the_function_no_table_needs_to_be_known(
    rdq: Shell, through: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    through._invoke = lambda _event: returned({"items": [], "next_cursor": None})
    monkeypatch.delenv("RDQ_TASKS_TABLE")
    assert rdq("status", "--via", "ops", "--json").code == 0


@pytest.mark.parametrize(
    ("invoke", "expected"),
    [
        (
            refusing(
                ClientError({"Error": {"Code": "AccessDeniedException", "Message": ""}}, "Invoke")
            ),
            "lambda:Invoke",
        ),
        (
            refusing(
                ClientError(
                    {"Error": {"Code": "TooManyRequestsException", "Message": ""}}, "Invoke"
                )
            ),
            "TooMany",
        ),
        (refusing(ConnectTimeoutError(endpoint_url="https://lambda")), "could not be invoked"),
        (
            lambda _event: {**returned({"errorMessage": "a secret"}), "FunctionError": "Unhandled"},
            "failed (Unhandled)",
        ),
        (lambda _event: returned("hello"), "not an ops function"),
    ],
)
def test_a_function_that_does_not_answer_is_told(
    rdq: Shell, through: Lambda, invoke: Invoke, expected: str
) -> None:
    through._invoke = invoke
    answer = rdq("status", "--via", "ops", "--json")
    assert (answer.code, answer.out) == (5, "")
    assert expected in answer.error["message"]
    assert "a secret" not in answer.err


def test_a_function_that_is_not_there_is_named(rdq: Shell, through: Lambda) -> None:
    assert "nope" in rdq("status", "--via", "nope", "--json").error["message"]


def test_through_the_function_an_aws_setting_that_cannot_be_used_is_told(
    rdq: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    answer = rdq("status", "--via", "ops", "--json")
    assert (answer.code, answer.out) == (5, "")
    assert "no-such-profile" in answer.error["message"]
