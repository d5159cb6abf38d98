"""The commands printed after "next:" are valid, and about what was printed."""

import io
import json
import shlex
from typing import Any

import pytest

from rdq_core.ops.job_control import JobControl
from rdq_core.runtime import remote
from rdq_core.runtime.operating import OpsFunction
from rdq_core.runtime.wiring import connect
from tests.cli.conftest import DeadLetter, Ended, Shell

ESCAPES = "\x1b[2J\x1b]0;owned\x07\u202e"


def next_commands(answer: Ended) -> list[list[str]]:
    """What the screen says to type, without the program's name."""
    _, is_there, commands = answer.out.partition("\nnext: ")
    assert is_there, answer
    return [shlex.split(line)[1:] for line in commands.splitlines()]


def pages(rdq: Shell, *arguments: str) -> list[Ended]:
    """A list to its end, each page by the command that the one before has printed."""
    found = [rdq(*arguments)]
    while (command := next_commands(found[-1])[-1]) and "--cursor" in command:
        assert len(found) < 10
        found.append(rdq(*command))
        assert (found[-1].code, found[-1].err) == (0, "")
    return found


def rows(found: list[Ended], word: str) -> int:
    return sum(
        word in line for page in found for line in page.out.partition("\nnext: ")[0].splitlines()
    )


@pytest.mark.parametrize(
    "conditions",
    [
        ["--type", "*Abort"],
        ["--handler", "charge", "--since", "3h"],
        ["--until", "2999-01-01T00:00:00Z"],
    ],
)
def test_the_next_page_of_the_dlq_meets_the_same_conditions(
    rdq: Shell, dead_letter: DeadLetter, conditions: list[str]
) -> None:
    for _ in range(3):
        dead_letter()
    found = pages(rdq, "dlq", "list", "billing", *conditions, "--page-size", "1")
    assert rows(found, "card_expired") == 3


def test_the_next_page_of_a_group_is_of_that_group(rdq: Shell, dead_letter: DeadLetter) -> None:
    for code in ("one", "two", "one"):
        dead_letter(code)
    (group,) = {
        each["fingerprint"]
        for each in rdq("dlq", "list", "billing", "--json").document["items"]
        if each["code"] == "one"
    }
    found = pages(rdq, "dlq", "list", "billing", "--group", group, "--page-size", "1")
    assert (rows(found, " one "), rows(found, " two ")) == (2, 0)


def test_the_next_page_of_a_queue_meets_the_same_conditions(rdq: Shell) -> None:
    for handler in ("charge", "mail", "charge"):
        rdq("submit", "-q", "billing", "-H", handler, "--payload", "x")
    found = pages(
        rdq,
        "task",
        "list",
        "billing",
        "--handler",
        "charge",
        "--status",
        "PENDING",
        "--page-size",
        "1",
    )
    assert (rows(found, "charge"), rows(found, "mail")) == (2, 0)


def test_the_next_page_of_the_audit_is_of_the_same_principal(rdq: Shell) -> None:
    for verb in ("pause", "resume", "pause"):
        rdq("queue", verb, "billing")
    found = pages(
        rdq, "audit", "list", "billing", "--principal", "ann", "--since", "3h", "--page-size", "2"
    )
    assert (rows(found, "pause "), rows(found, "resume")) == (2, 1)


def test_a_screen_of_an_ops_function_leads_on_through_it(
    rdq: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lambda:
        # as boto3 has it
        def invoke(self, *, Payload: bytes, **_: str) -> dict[str, Any]:  # noqa: N803
            answer = OpsFunction(connect()).answer(json.loads(Payload))
            return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(answer).encode())}

    monkeypatch.setattr(remote, "lambda_client", lambda _seconds: Lambda())
    (command,) = next_commands(rdq("status", "--via", "acme-ops"))
    assert command == ["queue", "get", "billing", "--via", "acme-ops"]
    monkeypatch.setenv("RDQ_VIA", "acme-ops")
    assert next_commands(rdq("status")) == [["queue", "get", "billing"]]


def test_whatever_state_a_task_is_in_its_screen_leads_on(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    dead = dead_letter()
    waits = rdq("submit", "-q", "billing", "-H", "charge", "--payload", "x", "--json").document[
        "submitted"
    ][0]["id"]
    assert next_commands(rdq("task", "get", dead)) == [
        ["dlq", "redrive", "billing", dead, "--dry-run"]
    ]
    assert next_commands(rdq("task", "get", waits)) == [["task", "list", "billing"]]
    rdq("task", "cancel", waits)
    assert next_commands(rdq("task", "get", waits)) == [["status", "billing"]]


def test_a_job_that_is_not_over_leads_to_what_it_waits_for(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    dead_letter()
    job_id = rdq("dlq", "redrive", "billing", "--all", "--yes", "--detach", "--json").document[
        "job_id"
    ]
    for command in (["job", "list"], ["job", "get", job_id]):
        assert next_commands(rdq(*command)) == [["job", "watch", job_id]]
    JobControl(connect()).pause(job_id)
    for command in (["job", "list"], ["job", "get", job_id]):
        assert next_commands(rdq(*command)) == [["job", "resume", job_id]]


def test_a_short_id_of_no_job_is_not_found(rdq: Shell) -> None:
    answer = rdq("job", "get", "XXXX0000", "--json")
    assert (answer.code, answer.error["hint"]) == (3, "rdq job list")


def test_an_empty_audit_leads_on(rdq: Shell) -> None:
    assert next_commands(rdq("audit", "list", "--principal", "nobody")) == [["status"]]


def test_what_people_have_written_does_nothing_to_a_terminal(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    dead_letter()
    rdq("queue", "pause", "billing", "--reason", f"down {ESCAPES}")
    rdq("queue", "set", "billing", "retry.max_attempts=3", "--reason", f"rush {ESCAPES}")
    rdq("dlq", "redrive", "billing", "--type", "none*", "--yes", "--reason", f"mended {ESCAPES}")
    for arguments in (["status"], ["queue", "get", "billing"], ["audit", "list"], ["job", "list"]):
        shown = rdq(*arguments)
        assert shown.code == 0
        assert not {*"\x1b\x07\u202e"} & {*shown.out, *shown.err}, arguments
    assert "down \\x1b[2J" in rdq("status").out
