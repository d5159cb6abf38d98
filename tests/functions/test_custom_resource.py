"""Queues as a CloudFormation custom resource: it always gets an answer, and no task is lost by a
template.
"""

import copy
import json
import threading
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.errors import QueueNotFound
from rdq_core.ops.queue_edits import QueueEditor
from rdq_core.runtime.cloudformation import CustomResource, put_answer
from rdq_core.runtime.operating import OpsFunction
from tests.engine.world import QUEUE, World
from tests.ops.dlq import ANN, Dlq

URL = "https://cloudformation.example/answer"
STACK = "arn:aws:cloudformation:eu-central-1:123456789012:stack/shop/1"


def config(**queues: Any) -> dict[str, Any]:
    return {"Config": {"config_version": "1", "queues": queues}}


class Stack:
    """A stack with one resource, as CloudFormation keeps it: its properties and its physical id."""

    def __init__(self) -> None:
        self.world = World()
        self.dlq = Dlq(self.world)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        resource = CustomResource(
            self.world.parts, send=lambda url, body: self.sent.append((url, json.loads(body)))
        )
        self.function = OpsFunction(self.world.parts, resource)
        self.physical: str | None = None
        self.name = "Queues"
        self.properties: dict[str, Any] = {}

    def send(self, kind: str, properties: dict[str, Any], **changes: Any) -> dict[str, Any]:
        event = {
            "RequestType": kind,
            "ResponseURL": URL,
            "StackId": STACK,
            "RequestId": f"request-{len(self.sent)}",
            "LogicalResourceId": self.name,
            "ResourceType": "Custom::RdqQueues",
            "ResourceProperties": {"ServiceToken": "arn", **properties},
            **({"PhysicalResourceId": self.physical} if self.physical else {}),
            **(
                {"OldResourceProperties": {"ServiceToken": "arn", **self.properties}}
                if kind == "Update"
                else {}
            ),
            **changes,
        }
        self.function.answer(event)
        url, answer = self.sent[-1]
        assert url == URL
        assert (answer["RequestId"], answer["StackId"], answer["LogicalResourceId"]) == (
            event["RequestId"],
            STACK,
            self.name,
        )
        self.physical = answer["PhysicalResourceId"]
        return answer

    def deploy(self, **queues: Any) -> dict[str, Any]:
        """A deploy, rolled back as CloudFormation does it when it fails."""
        wanted, before = config(**queues), self.properties
        is_new = self.physical is None
        answer = self.send("Create" if is_new else "Update", wanted)
        if answer["Status"] == "SUCCESS":
            self.properties = wanted
        elif is_new:
            assert self.send("Delete", wanted)["Status"] == "SUCCESS"
        else:
            self.properties = wanted
            assert self.send("Update", before)["Status"] == "SUCCESS"
            self.properties = before
        return answer

    def beside(self, name: str = "Others") -> "Stack":
        """Another resource of the same stack."""
        other = copy.copy(self)
        other.physical, other.name, other.properties = None, name, {}
        return other

    def declared(self, queue: str = "email") -> Any:
        stored = self.world.queues.stored(queue)
        return None if stored is None or stored.is_leaving else stored.declared


@pytest.fixture
def stack() -> Stack:
    return Stack()


THREE = {
    "retry": {"max_attempts": "3", "jitter": "0.5"},
    "owner": "123",
    "classification": {"permanent": ["1"]},
}


def test_what_a_template_says_is_declared_with_its_numbers_again(stack: Stack) -> None:
    answer = stack.deploy(email=THREE)
    assert (answer["Status"], answer["Data"]) == ("SUCCESS", {"Queues": "email"})
    settings = stack.world.queues.settings("email")
    assert (settings.retry.max_attempts, settings.owner) == (3, "123")
    assert stack.world.queues.settings(QUEUE).revision == 1


def test_a_deploy_makes_the_key_of_page_cursors_for_those_who_may_only_read(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []
    monkeypatch.setattr(stack.world.parts.cursor_key, "key", lambda: made.append(True))
    stack.deploy(email=THREE)
    assert made == [True]


def test_the_file_may_be_given_as_text(stack: Stack) -> None:
    text = "config_version: 1\nqueues:\n  email: {retry: {max_attempts: 7}}\n"
    assert stack.send("Create", {"Text": text})["Status"] == "SUCCESS"
    assert stack.world.queues.settings("email").retry.max_attempts == 7


def test_the_physical_id_stays_the_same_for_the_resource_s_whole_life(stack: Stack) -> None:
    ids = {stack.deploy(email=THREE)["PhysicalResourceId"]}
    ids.add(stack.deploy(email={"owner": "b"})["PhysicalResourceId"])
    ids.add(stack.deploy(email={"owner": "b"}, orders={})["PhysicalResourceId"])
    ids.add(stack.send("Delete", stack.properties)["PhysicalResourceId"])
    assert len(ids) == 1


def test_an_override_of_people_survives_a_deploy(stack: Stack) -> None:
    stack.deploy(email=THREE)
    QueueEditor(stack.world.parts, stack.world.parts.auditor(ANN)).set(
        "email", ["retry.max_attempts=9"], reason="a rush"
    )
    stack.deploy(email={**THREE, "owner": "b"})
    assert stack.world.queues.settings("email").retry.max_attempts == 9


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"Config": {}, "Text": "x"},
        {"Config": "nonsense"},
        {"Text": "queues: ["},
        config(email={"retry": {"max_attempts": "0"}}),
        config(email={"colour": "red"}),
        {"Config": {"config_version": "1", "queues": {}}},
    ],
)
def test_a_template_that_is_wrong_changes_nothing_and_says_why(
    stack: Stack, properties: dict[str, Any]
) -> None:
    answer = stack.send("Create", properties)
    assert answer["Status"] == "FAILED"
    assert 0 < len(answer["Reason"]) <= 1024
    assert stack.declared() is None
    assert stack.send("Delete", properties)["Status"] == "SUCCESS"


def test_a_create_that_failed_deletes_nothing_when_it_is_rolled_back(stack: Stack) -> None:
    bad = config(**{QUEUE: {"retry": {"max_attempts": "0"}}})
    assert stack.send("Create", bad)["Status"] == "FAILED"
    good = config(**{QUEUE: {}})
    assert stack.send("Delete", good)["Status"] == "SUCCESS"
    assert stack.declared(QUEUE) is not None


def test_an_update_that_fails_is_rolled_back_to_what_was_declared(stack: Stack) -> None:
    stack.deploy(email=THREE)
    before = stack.declared()
    assert stack.deploy(email={"retry": {"max_attempts": "0"}})["Status"] == "FAILED"
    assert stack.declared() == before


def test_a_conflict_takes_back_the_queues_that_were_just_made(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, store = stack.world.queues.put_declared, stack.world.queues

    def disturbed(queue: str, *arguments: Any, expected_revision: int) -> Any:
        if queue == "orders":
            expected_revision += 1
        return put(queue, *arguments, expected_revision=expected_revision)

    monkeypatch.setattr(store, "put_declared", disturbed)
    answer = stack.send("Create", config(email={}, orders={}))
    assert answer["Status"] == "FAILED"
    assert "orders" in answer["Reason"]
    assert (stack.declared("email"), stack.declared("orders")) == (None, None)


def test_a_queue_that_left_the_template_is_deleted_when_it_is_empty(stack: Stack) -> None:
    stack.deploy(email=THREE, orders={})
    answer = stack.deploy(email=THREE)
    assert answer["Data"] == {"Queues": "email"}
    orders = stack.world.queues.stored("orders")
    assert orders is not None
    assert orders.is_leaving


@pytest.mark.parametrize("state", ["waiting", "dead"])
def test_a_queue_that_holds_a_task_is_never_deleted(stack: Stack, state: str) -> None:
    stack.deploy(**{QUEUE: {"index_shards": "1"}}, email={})
    stored = stack.world.queues.stored(QUEUE)
    assert stored is not None
    assert stack.world.queues.put_owners(stored, (str(stack.physical),))
    if state == "dead":
        stack.dlq.fill()
    else:
        stack.world.submit()

    assert stack.deploy(email={})["Data"] == {"Queues": "email", "Kept": QUEUE}
    stack.properties = config(**{QUEUE: {"index_shards": "1"}}, email={})
    assert stack.send("Delete", stack.properties)["Data"] == {"Kept": QUEUE}

    assert stack.declared(QUEUE) is not None
    assert stack.declared("email") is None


def test_a_queue_that_moves_to_another_resource_is_not_deleted_by_the_one_that_it_leaves(
    stack: Stack,
) -> None:
    stack.deploy(email=THREE, orders={})
    stack.beside().deploy(email=THREE)
    assert stack.send("Update", config(orders={}))["Data"] == {"Queues": "orders", "Kept": "email"}
    assert stack.declared() is not None


def test_a_resource_that_is_renamed_keeps_its_queues(stack: Stack) -> None:
    stack.deploy(email=THREE)
    renamed = stack.beside("Renamed")
    renamed.deploy(email=THREE)
    stack.send("Delete", stack.properties)
    assert stack.declared() is not None
    assert renamed.send("Delete", renamed.properties)["Data"] == {}
    assert stack.declared() is None


def test_a_rename_that_is_rolled_back_leaves_the_queues_to_the_old_resource(stack: Stack) -> None:
    stack.deploy(email=THREE)
    renamed = stack.beside("Renamed")
    renamed.deploy(email=THREE)
    assert renamed.send("Delete", renamed.properties)["Data"] == {"Kept": "email"}
    assert stack.declared() is not None
    assert stack.send("Delete", stack.properties)["Data"] == {}
    assert stack.declared() is None


def test_a_queue_that_people_have_made_is_never_deleted_by_a_template(stack: Stack) -> None:
    stack.deploy(**{QUEUE: {"owner": "a"}})
    assert stack.send("Delete", stack.properties)["Data"] == {"Kept": QUEUE}
    assert stack.declared(QUEUE) is not None


def test_a_queue_that_comes_back_while_it_is_deleted_is_whose_template_says_so(
    stack: Stack,
) -> None:
    stack.deploy(email=THREE)
    stack.send("Delete", stack.properties)
    back = stack.beside("Back")
    back.deploy(email=THREE)
    assert stack.declared() is not None
    back.send("Delete", back.properties)
    assert stack.declared() is None


def test_a_queue_that_is_gone_already_is_no_obstacle(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.deploy(email=THREE)

    def gone(*_: object, **__: object) -> None:
        raise QueueNotFound("deleted by another caller")

    monkeypatch.setattr(QueueEditor, "delete", gone)
    assert stack.send("Delete", stack.properties)["Status"] == "SUCCESS"


def test_a_bug_is_answered_too_without_private_data(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(QueueEditor, "apply", broken)
    answer = stack.send("Create", config(email={}))
    assert answer["Status"] == "FAILED"
    assert "ZeroDivisionError" in answer["Reason"]
    assert "a secret" not in answer["Reason"]


ODD: dict[str, dict[str, Any]] = {
    "a kind that is none": {"RequestType": "Upsert"},
    "a kind that is a list": {"RequestType": ["Create"]},
    "properties that are text": {"ResourceProperties": "queues"},
    "properties that are missing": {"ResourceProperties": None},
    "a file that is a number": {"ResourceProperties": {"Text": 5}},
    "a configuration that is a list": {"ResourceProperties": {"Config": ["email"]}},
    "a number too long for one": {
        "ResourceProperties": config(email={"retry": {"max_attempts": "9" * 5000}})
    },
    "brackets without end": {
        "ResourceProperties": config(email={"retry": {"max_attempts": "[" * 5000}})
    },
    "surrogates": {"StackId": "\ud800", "LogicalResourceId": "\ud800", "RequestType": 5},
}


@pytest.mark.parametrize("odd", ODD)
def test_an_event_that_makes_no_sense_is_answered_with_what_is_wrong(odd: str) -> None:
    sent: list[bytes] = []
    resource = CustomResource(World().parts, send=lambda _url, body: sent.append(body))
    event = {
        "RequestType": "Create",
        "ResponseURL": URL,
        "ResourceProperties": config(email={}),
        **ODD[odd],
    }
    resource.handle(event)
    (answer,) = map(json.loads, sent)
    assert answer["Status"] == "FAILED"
    assert "bug" not in answer["Reason"]


def test_out_of_time_it_still_answers(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def hanging(*_: object, **__: object) -> None:
        hangs.wait(30)

    monkeypatch.setattr(QueueEditor, "apply", hanging)
    sent: list[bytes] = []
    resource = CustomResource(stack.world.parts, send=lambda _url, body: sent.append(body))
    event = {"RequestType": "Create", "ResponseURL": URL, "ResourceProperties": config(email={})}
    resource.handle(event, timedelta(seconds=3))
    hangs.set()
    assert json.loads(sent[0])["Status"] == "FAILED"
    assert "time" in json.loads(sent[0])["Reason"]


def test_an_answer_that_cannot_be_delivered_raises_nothing(stack: Stack) -> None:
    def refuses(_url: str, _body: bytes) -> None:
        raise OSError("no route")

    answer = CustomResource(stack.world.parts, send=refuses).handle(
        {"RequestType": "Create", "ResponseURL": URL, "ResourceProperties": config(email={})}
    )
    assert answer["Status"] == "SUCCESS"


def test_answers_go_nowhere_but_to_https() -> None:
    for url in ("http://example.com", "file:///etc/passwd", ""):
        with pytest.raises(OSError, match="URL"):
            put_answer(url, b"{}")
