"""Canaries through every function, called as Lambda calls them, at log level DEBUG."""

import ast
import base64
import importlib.util
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

import pytest

from rdq_core.domain.ids import derive_id
from rdq_core.errors import RdqError
from rdq_core.handlers.aws_lambda import LambdaInvoker
from rdq_core.ops.requests import OPERATIONS
from rdq_core.runtime import cloudformation, hosting
from rdq_core.runtime.intake import IntakeFunction
from rdq_core.runtime.wiring import connect
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from rdq_core.testing.clock import FollowsClock, FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.functions import LambdaContext
from tests.support.canary import (
    HEADER,
    MESSAGE,
    PAYLOAD,
    REFERENCE,
    RESULT,
    ROOT,
    SOLD,
    VARIABLE,
    Outlets,
    told_of,
)
from tests.support.engines import Engine
from tests.support.events import event
from tests.support.functions import ScriptedLambda, failed

pytestmark = pytest.mark.usefixtures("function_logs")

TABLES: Final = Tables("tasks", "dlq", "control", "audit")
QUEUES: Final = {
    "billing": {
        "retry": {"max_attempts": "1"},
        "execution": {"handler_timeout": "10s"},
        "dispatch": {"host": "sweeper"},
    },
    "mail": {
        "retry": {"max_attempts": "2", "initial_backoff": "1s"},
        "execution": {"handler_timeout": "10s"},
        "handlers": {"send": {"function": "send-fn"}},
    },
}
WHOLE: Final = {HEADER, MESSAGE, RESULT, REFERENCE}
MAY_ANSWER: Final[Mapping[str, set[str]]] = {
    "task.get": WHOLE,
    "dlq.show": WHOLE,
    "dlq.list": {MESSAGE},
    "dlq.groups": {MESSAGE},
}
"""What operations answer besides names, numbers and times: never a payload that wasn't asked for.
"""


def every_function() -> set[str]:
    """What Lambda can be told to call."""
    return {
        f"{file.stem}.{node.name}"
        for file in (ROOT / "functions").glob("*.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


class Printing(logging.Handler):
    """What Lambda's runtime gives the root logger. Standard output is another one in each phase of
    a test.
    """

    def emit(self, record: logging.LogRecord) -> None:
        sys.stdout.write(f"{self.format(record)}\n")


class Account:
    """rdq's functions on tables of this process and the test's clock. What they start isn't run."""

    def __init__(self, engine: Engine, outlets: Outlets, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = engine.dynamodb
        self.outlets = outlets
        self.called: set[str] = set()
        self._clock = FrozenClock()
        self.theirs = ScriptedLambda()
        self._modules: dict[str, ModuleType] = {}
        monkeypatch.setattr(hosting, "connect", self._connect)
        monkeypatch.setattr(
            hosting, "_starter", lambda: lambda *told: outlets.hear("invocation", told)
        )
        monkeypatch.setattr(
            cloudformation, "put_answer", lambda *told: outlets.hear("cloudformation", told)
        )

    def _connect(self, **given: Any) -> Any:
        parts = connect(
            self.client, TABLES, clock=self._clock, sleeper=SkipsSleep(self._clock), **given
        )
        invoker = LambdaInvoker(lambda _seconds: self.theirs, on_error=parts.on_error)
        return replace(
            parts, jitter=NoJitter(), busy=FollowsClock(self._clock), invoker=lambda: invoker
        )

    def call(self, function: str, told: object, *, alias: str = "") -> Any:
        """Call a function of rdq's. What it raises is what its caller gets to see."""
        self.called.add(function)
        name, _, handler = function.partition(".")
        if name not in self._modules:
            self._modules[name] = self._cold(name)
        try:
            return getattr(self._modules[name], handler)(told, LambdaContext(f"rdq-{name}{alias}"))
        except RdqError as refused:
            self.outlets.hear("error", *told_of(refused))

    def _cold(self, name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(
            f"cold_{name}", ROOT / "functions" / f"{name}.py"
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def operate(self, op: str, **fields: Any) -> Any:
        """An operator request, answered twice: to whoever invokes the function, and through its
        URL.
        """
        url = event("function_url") | {"body": json.dumps({"op": op, **fields})}
        for told, alias in ((url, ":url"), ({"op": op, **fields}, "")):
            answer = self.call("ops.handler", told, alias=alias)
            self.outlets.hear(f"answer of {op}", json.dumps(answer))
        return answer

    def rows(self) -> list[dict[str, Any]]:
        """Every row of the tasks table, as its stream has it."""
        return [
            json.loads(json.dumps(row, default=lambda content: base64.b64encode(content).decode()))
            for row in self.client.scan(TableName=TABLES.tasks)["Items"]
        ]


@pytest.fixture
def account(
    moto: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Account]:
    """The functions, whose process logs at DEBUG whatever it can."""
    create_tables(moto.dynamodb, TABLES)
    routes = {"*": {"queue": "billing", "handler_ref": "pays"}}
    environment = {
        "RDQ_REGISTRY": "tests.support.waiting",
        "RDQ_SWEEPER_FUNCTION": "rdq-sweeper",
        "RDQ_INTAKE_ROUTES": json.dumps(routes),
        "AWS_LAMBDA_LOG_LEVEL": "DEBUG",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    root, printing = logging.getLogger(), Printing()
    root.addHandler(printing)
    with Outlets(capsys) as outlets:
        yield Account(moto, outlets, monkeypatch)
    root.removeHandler(printing)


# -- what happens in it ----------------------------------------------------------------------------


def deploy(account: Account) -> None:
    """CloudFormation declares the queues; the second time it says something wrong."""
    url = "https://cloudformation.example/answer"
    told = {
        "RequestType": "Create",
        "ResponseURL": url,
        "StackId": "shop",
        "LogicalResourceId": "Queues",
    }
    config = {"config_version": "1", "queues": QUEUES}
    account.call("ops.handler", {**told, "ResourceProperties": {"Config": config}})
    account.call("ops.handler", {**told, "ResourceProperties": {"Config": ["queues"]}})


def take_in(account: Account) -> dict[str, str]:
    """Calls from everywhere, and some that are refused. The ids of three of them, by what becomes
    of them.
    """
    for name in ("sqs", "sqs_fifo", "lambda_dead_letter_queue"):
        batch = event(name)
        for record in batch["Records"]:
            record["body"] = json.dumps({"card": PAYLOAD})
            record.setdefault("messageAttributes", {})["customer"] = {
                "stringValue": HEADER,
                "dataType": "String",
            }
        account.call("intake.handler", batch)
        account.call(
            "intake.handler", {"Records": [each | {"messageId": 5} for each in batch["Records"]]}
        )
    failure = event("on_failure_destination") | {"requestPayload": {"card": PAYLOAD}}
    failure["responsePayload"] = {
        "errorType": "E",
        "errorMessage": MESSAGE,
        "stackTrace": [VARIABLE],
    }
    account.call("intake.handler", failure)
    account.call("intake.handler", event("eventbridge") | {"detail": {"card": PAYLOAD}})
    for wrong in (
        {"delay": PAYLOAD},
        {"payload_text": PAYLOAD},
        {"queue": "nowhere"},
        {"headers": {"a": [HEADER]}},
    ):
        account.call("intake.handler", {"submit": a_task("pays", "wrong", **wrong)})
    for ref in ("pays", "fails", "nobody-knows"):
        account.call("intake.handler", {"submit": a_task(ref, ref)})
    account.call("intake.handler", {"submit": a_task("send", "sent", queue="mail")})
    account.call("intake.handler", {"submit": a_task("pays", "waits", delay="1h")})
    return {ref: derive_id("billing", ref) for ref in ("pays", "fails", "waits")}


def a_task(ref: str, key: str, **fields: Any) -> dict[str, Any]:
    return {
        "queue": "billing",
        "handler_ref": ref,
        "key": key,
        "payload_json": {"card": PAYLOAD},
        **SOLD,
        **fields,
    }


def work(account: Account) -> None:
    """The stream tells of new rows, a sweep runs them, and the stream tells that rows are gone."""
    account.theirs.answer(
        failed(errorType="E", errorMessage=MESSAGE, stackTrace=[VARIABLE]),
        json.dumps({"statusCode": 500, "body": RESULT}).encode(),
    )
    account.call(
        "kick.handler",
        {
            "Records": [
                {"eventName": "INSERT", "dynamodb": {"NewImage": row}} for row in account.rows()
            ]
        },
    )
    account.call("kick.handler", {"Records": [PAYLOAD]})
    account.call("sweeper.handler", {})
    account.call("sweeper.handler", {"queues": [PAYLOAD]})
    gone = [{"dynamodb": {"OldImage": row | {"lf": {"S": "gone"}}}} for row in account.rows()]
    account.call("kick.clean_up", {"Records": gone})


def operate(account: Account, ids: Mapping[str, str]) -> set[str]:
    """Every operation, each rightly and with something private where nothing is expected. Which
    they were.
    """
    file = {"config": {"config_version": 1, "queues": {"mail": {"owner": "us"}}}}
    job = account.operate("dlq.redrive", queue="billing", all=True, reason="mended")["job_id"]
    encoded = base64.b64encode(PAYLOAD.encode()).decode()
    requests: dict[str, dict[str, Any]] = {
        **{op: {} for op in ("status", "queue.list", "job.list", "audit.list", "dlq.groups")},
        **{op: {"queue": "billing"} for op in ("dlq.list", "task.list", "queue.get")},
        "dlq.show": {"id": ids["fails"]},
        "task.get": {"id": ids["pays"]},
        "task.find": {"short": ids["fails"][:12]},
        "task.cancel": {"ids": [ids["waits"], ids["pays"]]},
        "dlq.redrive": {"queue": "billing", "ids": [ids["fails"]], "payload_base64": encoded},
        "dlq.purge": {"queue": "billing", "ids": [ids["fails"]]},
        **dict.fromkeys(("queue.check", "queue.diff", "queue.apply"), file),
        "queue.set": {"queue": "billing", "set": ["retry.max_attempts=2"], "reason": "a rush"},
        **{
            f"queue.{verb}": {"queue": "billing"}
            for verb in ("stats", "ladder", "pause", "resume", "delete")
        },
        **{
            f"job.{verb}": {"job_id": job}
            for verb in ("get", "pause", "resume", "advance", "cancel")
        },
        # Last, because every task is of this target.
        "task.forget": {"target": SOLD["target"]},
    }
    for op, fields in requests.items():
        account.operate(op, **fields)
        account.operate(op, **fields, colour=PAYLOAD)
        account.operate(op, **{**fields, "queue": {"named": PAYLOAD}, "id": [PAYLOAD]})
    return set(requests)


def test_no_function_tells_what_is_private(account: Account) -> None:
    deploy(account)
    ids = take_in(account)
    work(account)
    operated = operate(account, ids)
    account.outlets.hear("audit", account.client.scan(TableName=TABLES.audit)["Items"])

    assert account.called == every_function()
    assert operated == set(OPERATIONS)
    told = ("log", "metric", "stdout", "audit", "error", "invocation", "cloudformation")
    assert [outlet for outlet in told if not account.outlets.heard(outlet)] == []
    leaks = account.outlets.leaks()
    assert (
        leaks
        - {(f"answer of {op}", secret) for op, secrets in MAY_ANSWER.items() for secret in secrets}
        == set()
    )
    # Else all of this would have been about tasks that hold nothing.
    assert leaks >= {
        ("answer of task.get", RESULT),
        ("answer of dlq.show", HEADER),
        ("answer of dlq.list", MESSAGE),
    }


def test_a_function_that_told_would_be_found_out(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(account)
    monkeypatch.setattr(
        IntakeFunction, "take", lambda _, told, *_facts: sys.stdout.write(f"{told}\n")
    )
    account.call("intake.handler", {"submit": a_task("pays", "pays")})
    assert account.outlets.leaks() == {
        ("stdout", secret) for secret in (PAYLOAD, HEADER, REFERENCE)
    }


def test_requests_would_be_in_the_logs_if_nobody_kept_them_out(account: Account) -> None:
    deploy(account)
    logging.getLogger("botocore").setLevel(logging.DEBUG)
    account.call("intake.handler", {"submit": a_task("pays", "pays")})
    assert ("stdout", HEADER) in account.outlets.leaks() or (
        "stdout",
        PAYLOAD,
    ) in account.outlets.leaks()
