"""`rdq task forget`: every task of a target or requester goes, after a question."""

import json

import pytest

from tests.cli.conftest import Shell


@pytest.fixture
def anns(rdq: Shell) -> list[str]:
    """The ids of two tasks that Ann asked for, in two queues, one of them about an order."""
    fields = {"handler_ref": "charge", "payload_text": "x", "requested_by": "ann"}
    lines = [
        json.dumps({"queue": "billing", "target": "order:17", **fields}),
        json.dumps({"queue": "email", **fields}),
    ]
    answer = rdq("submit", "--tasks", "-", "--json", given="\n".join(lines).encode())
    return [each["id"] for each in answer.document["submitted"]]


def test_every_task_of_a_requester_is_removed(rdq: Shell, anns: list[str]) -> None:
    answer = rdq("task", "forget", "--requested-by", "ann", "--yes", "--json")
    assert (answer.code, answer.document["selected"], answer.document["done"]) == (0, 2, 2)
    assert [rdq("task", "get", task_id).code for task_id in anns] == [3, 3]


def test_people_read_how_many_were_removed(rdq: Shell, anns: list[str]) -> None:
    answer = rdq("task", "forget", "--target", "order:17", "--yes", "--reason", "request 4711")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "1 task removed")
    assert [rdq("task", "get", task_id).code for task_id in anns] == [3, 0]


def test_without_a_terminal_it_needs_yes(rdq: Shell, anns: list[str]) -> None:
    answer = rdq("task", "forget", "--requested-by", "ann", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert "--yes" in answer.error["hint"]
    assert [rdq("task", "get", task_id).code for task_id in anns] == [0, 0]


@pytest.mark.parametrize("arguments", [[], ["--target", "order:17", "--requested-by", "ann"]])
def test_it_takes_a_target_or_a_requester(
    rdq: Shell, anns: list[str], arguments: list[str]
) -> None:
    answer = rdq("task", "forget", *arguments, "--yes", "--json")
    assert (answer.code, answer.error["code"]) == (2, "task_input_invalid")
    assert [rdq("task", "get", task_id).code for task_id in anns] == [0, 0]


def test_the_audit_log_has_the_reason_and_not_the_name(rdq: Shell, anns: list[str]) -> None:
    assert rdq("task", "forget", "--requested-by", "ann", "--yes", "--reason", "4711").code == 0
    records = rdq("audit", "list", "--json").document["items"][:2]
    assert [(each["operation"], each["reason"]) for each in records] == [
        ("task.forget", "4711")
    ] * 2
    assert set(records[1]["detail"]) == {"requested_by_sha256"}
    assert anns
