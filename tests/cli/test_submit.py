"""`rdq submit`: what is stored, what is refused, and how it is text."""

import base64
import json
from pathlib import Path

import pytest

from rdq_core.runtime import wiring
from rdq_core.testing.faults import FaultScript
from tests.cli.conftest import DeadLetter, Shell

ONE = ("submit", "-q", "billing", "-H", "charge")


def lines(*items: bytes) -> bytes:
    return b"".join(item + b"\n" for item in items)


def tasks(count: int, **odd: bytes) -> bytes:
    """Task objects, a line each; `line17=...` puts another text in its place."""
    good = [
        json.dumps({"queue": "billing", "handler_ref": "charge", "payload_text": str(n)}).encode()
        for n in range(count)
    ]
    for name, text in odd.items():
        good[int(name.removeprefix("line")) - 1] = text
    return lines(*good)


def stored(rdq: Shell) -> int:
    found: int = rdq("queue", "stats", "billing", "--json").document["pending"]
    return found


# -- one task --------------------------------------------------------------------------------------


def test_a_submitted_task_can_be_read_back(rdq: Shell) -> None:
    answer = rdq(
        *ONE, "--payload", "hällo", "--header", "a=b=c", "--handler-version", "v3", "--json"
    )
    (submitted,) = answer.document["submitted"]
    assert submitted == {"id": submitted["id"], "created": True, "line": None}
    task = rdq("task", "get", submitted["id"], "--show-payload", "-o", "json").document
    assert base64.b64decode(task["payload"]).decode() == "hällo"
    assert (task["headers"], task["handler_version"], task["status"]) == (
        {"a": "b=c"},
        "v3",
        "PENDING",
    )


def test_a_key_submits_once_and_finds_the_task_again(rdq: Shell) -> None:
    first = rdq(*ONE, "--payload", "1", "--key", "order-17", "--json").document["submitted"][0]
    second = rdq(*ONE, "--payload", "2", "--key", "order-17", "--json").document["submitted"][0]
    assert second == {"id": first["id"], "created": False, "line": None}
    assert (
        rdq("task", "get", "-q", "billing", "--key", "order-17", "--json").document["id"]
        == first["id"]
    )


def test_people_see_that_a_key_was_there_already(rdq: Shell) -> None:
    rdq(*ONE, "--payload", "1", "--key", "order-17")
    answer = rdq(*ONE, "--payload", "2", "--key", "order-17")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "already there, nothing submitted")


def test_a_file_or_standard_input_is_the_payload_byte_for_byte(rdq: Shell, tmp_path: Path) -> None:
    content = bytes(range(256))
    (tmp_path / "body").write_bytes(content)
    for arguments, given in (
        (["--payload-file", str(tmp_path / "body")], b""),
        (["--payload", "-"], content),
    ):
        task_id = rdq(*ONE, *arguments, "--json", given=given).document["submitted"][0]["id"]
        task = rdq("task", "get", task_id, "--show-payload", "--json").document
        assert base64.b64decode(task["payload"]) == content


def test_a_delay_puts_the_task_off(rdq: Shell) -> None:
    task_id = rdq(*ONE, "--payload", "x", "--delay", "1h", "--json").document["submitted"][0]["id"]
    task = rdq("task", "get", task_id, "--json").document
    assert task["next_attempt_at"] > task["created_at"]


def test_target_and_requester_are_stored(rdq: Shell) -> None:
    answer = rdq(*ONE, "--payload", "x", "--target", "order:7", "--requested-by", "ann", "--json")
    task = rdq("task", "get", answer.document["submitted"][0]["id"], "--json").document
    assert (task["target"], task["requested_by"]) == ("order:7", "ann")


@pytest.mark.parametrize(
    "times", [["--delay", "60"], ["--delay", "1h", "--run-at", "2026-07-20T12:00:00Z"]]
)
def test_a_wrong_time_for_a_file_is_reported_once(rdq: Shell, times: list[str]) -> None:
    answer = rdq("submit", "--tasks", "-", *times, "--json", given=tasks(3))
    assert (answer.code, answer.out) == (2, "")
    assert answer.error["message"].startswith("delay: ")
    assert stored(rdq) == 0


def test_waiting_ends_with_the_task(rdq: Shell, dead_letter: DeadLetter) -> None:
    task_id = dead_letter()
    answer = rdq(*ONE, "--payload", "x", "--id", task_id, "--wait")
    assert answer.code == 4
    assert "DEAD after 1 attempt\n" in answer.out


def test_people_see_what_to_type_next(rdq: Shell) -> None:
    answer = rdq(*ONE, "--payload", "x")
    assert answer.out.startswith("submitted 1 task to billing\n")
    assert "next: rdq task get " in answer.out
    assert answer.err == ""


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["-q", "Café", "-H", "charge", "--payload", "x"], "queue"),
        (["-q", "billing\n", "-H", "charge", "--payload", "x"], "queue"),
        (["-q", "", "-H", "charge", "--payload", "x"], "queue"),
        (["-q", "billing", "-H", "h" * 241, "--payload", "x"], "handler_ref"),
        (["-q", "billing", "-H", "rdq.x", "--payload", "x"], "handler_ref"),
        (["-q", "billing", "-H", "charge", "--payload", "x" * 1025], "payload"),
        (
            ["-q", "billing", "-H", "charge", "--payload", "x", "--header", "rdq.x=1"],
            "headers.rdq.x",
        ),
        (["-q", "billing", "-H", "charge", "--payload", "x", "--header", "novalue"], "header"),
        (
            ["-q", "billing", "-H", "charge", "--payload", "x", "--run-at", "2026-07-20T12:00:00"],
            "run_at",
        ),
        (["-q", "billing", "-H", "charge", "--payload", "x", "--delay", "60"], "delay"),
        (["-q", "billing", "-H", "charge", "--payload", "x", "--id", "17"], "id"),
        (["-q", "billing", "-H", "charge", "--payload-file", "/nonexistent"], "payload_file"),
        (
            [
                "-q",
                "billing",
                "-H",
                "charge",
                "--payload",
                "{n: 17}",
                "--content-type",
                "application/json",
            ],
            "payload",
        ),
    ],
)
def test_bad_input_is_refused_by_its_field_and_not_stored(
    rdq: Shell, arguments: list[str], field: str
) -> None:
    answer = rdq("submit", *arguments, "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.error["code"] == "task_input_invalid"
    assert answer.error["message"].startswith(f"{field}: ")
    assert stored(rdq) == 0


def test_an_unknown_queue_is_wrong_use(rdq: Shell) -> None:
    answer = rdq("submit", "-q", "nope", "-H", "charge", "--payload", "x", "--json")
    assert (answer.code, answer.error["code"]) == (2, "queue_not_found")


def test_an_unknown_queue_is_reported_the_same_for_payloads(rdq: Shell) -> None:
    answer = rdq("submit", "-q", "nope", "-H", "charge", "--payloads", "-", "--json", given=b"x")
    assert (answer.code, answer.error["code"]) == (2, "queue_not_found")


def test_swapped_arguments_are_recognised(rdq: Shell) -> None:
    answer = rdq("submit", "-q", "charge", "-H", "billing", "--payload", "x")
    assert answer.code == 2
    assert "swapped" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--payload", "x", "--payloads", "-"],
        ["--payloads", "-", "--key", "k"],
        ["--payloads", "-", "--wait"],
        ["--payload", "x", "--bogus"],
        ["--payload", "x", "--id", "01J00000000000000000000000", "--key", "k"],
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(rdq: Shell, arguments: list[str]) -> None:
    answer = rdq(*ONE, *arguments, "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.error["message"]


def test_a_used_id_of_another_queue_is_a_conflict(rdq: Shell) -> None:
    used = rdq(*ONE, "--payload", "x", "--json").document["submitted"][0]["id"]
    answer = rdq("submit", "-q", "email", "-H", "send", "--payload", "x", "--id", used, "--json")
    assert (answer.code, answer.error["code"], answer.error["id"]) == (4, "task_conflict", used)


# -- many ------------------------------------------------------------------------------------------


def test_payloads_are_lines_as_they_stand(rdq: Shell) -> None:
    answer = rdq(*ONE, "--payloads", "-", "--json", given=b'{"a": 1}\n \xff \r\nlast').document
    assert [(each["line"], each["created"]) for each in answer["submitted"]] == [
        (1, True),
        (2, True),
        (3, True),
    ]
    bodies = [
        base64.b64decode(
            rdq("task", "get", each["id"], "--show-payload", "--json").document["payload"]
        )
        for each in answer["submitted"]
    ]
    assert bodies == [b'{"a": 1}', b" \xff \r", b"last"]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [(b"x" * 1025, "1025 bytes"), (b"", "is empty"), (b"x" * 1048577, "1048577")],
)
def test_one_bad_payload_is_listed_and_the_others_are_submitted(
    rdq: Shell, bad: bytes, problem: str
) -> None:
    given = lines(*[b"x"] * 16, bad, *[b"x"] * 23)
    answer = rdq(*ONE, "--payloads", "-", "--json", given=given)
    assert answer.code == 2
    (rejected,) = answer.document["rejected"]
    assert (rejected["line"], rejected["code"], rejected["field"]) == (
        17,
        "task_input_invalid",
        "payload",
    )
    assert problem in rejected["message"]
    assert "line 17" in answer.error["message"]
    assert stored(rdq) == len(answer.document["submitted"]) == 39


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"{oops", "task"),
        (b"[]", "task"),
        (b'{"queue": "Caf\xc3\xa9", "handler_ref": "charge", "payload_text": ""}', "queue"),
        (b'{"queue": "billing", "handler_ref": "charge"}', "payload"),
        (b'{"queue": "billing", "handler_ref": "charge", "payload": "%%%"}', "payload"),
        (
            b'{"queue": "billing", "handler_ref": "charge", "payload_text": "", "payload_json": 1}',
            "payload_json",
        ),
        (
            (
                b'{"queue": "billing", "handler_ref": "charge", "payload_text": "",'
                b' "headers": {"rdq.x": "1"}}'
            ),
            "headers.rdq.x",
        ),
        (
            (
                b'{"queue": "billing", "handler_ref": "charge", "payload_text": "",'
                b' "run_at": "2026-07-20T12:00:00"}'
            ),
            "run_at",
        ),
        (b'{"queue": "nope", "handler_ref": "charge", "payload_text": ""}', "queue"),
        (
            (
                b'{"queue": "billing", "handler_ref": "charge", "payload_text": "",'
                b' "envelope_version": 2}'
            ),
            "envelope_version",
        ),
        (b'{"queue": "billing", "handler_ref": "charge", "payload_json": NaN}', "task"),
        (b'{"queue": "billing", "handler_ref": "charge", "payload_json": [1e999]}', "payload_json"),
        (b'{"queue": "billing", "payload_text": ""}', "handler_ref"),
        (b'{"handler_ref": "charge", "payload_text": ""}', "queue"),
        (
            b'{"queue": "billing", "handler_ref": "charge", "payload_text": "", "dealy": "1h"}',
            "dealy",
        ),
        (b"[" * 100_000, "task"),
    ],
)
def test_one_bad_task_object_is_listed_by_line_and_field(
    rdq: Shell, line: bytes, field: str
) -> None:
    answer = rdq("submit", "--tasks", "-", "--json", given=tasks(40, line17=line))
    assert answer.code == 2
    assert [(each["line"], each["field"]) for each in answer.document["rejected"]] == [(17, field)]
    assert [each["line"] for each in answer.document["submitted"]] == [
        *range(1, 17),
        *range(18, 41),
    ]
    assert stored(rdq) == 39


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"queue": "billing", "payload_text": ""}', "handler_ref: is missing"),
        (
            b'{"queue": "billing", "handler": "charge", "payload_text": ""}',
            "did you mean handler_ref?",
        ),
        (
            b'{"queue": "billing", "handler_ref": "charge", "payload_json": 1, "dealy": "1h"}',
            "did you mean delay?",
        ),
        (
            b'{"queue": "billing", "handler_ref": "charge", "payload_jsn": 1}',
            "did you mean payload_json?",
        ),
        (
            b'{"queue": "billing", "handler_ref": "charge", "payload": "hello"}',
            "or give payload_text or payload_json",
        ),
        (
            b'{"queue": "billing", "handler_ref": "charge", "payload": {"n": 1}}',
            "or give payload_text or payload_json",
        ),
    ],
)
def test_a_slip_in_a_task_object_is_named_and_nothing_more_is_claimed(
    rdq: Shell, line: bytes, text: str
) -> None:
    answer = rdq("submit", "--tasks", "-", "--json", given=lines(line))
    assert text in answer.error["message"]
    assert "the others" not in answer.error["message"]


def test_with_atomic_one_bad_line_keeps_all_of_them_out(rdq: Shell) -> None:
    answer = rdq("submit", "--tasks", "-", "--atomic", "--json", given=tasks(40, line17=b"{"))
    assert answer.code == 2
    assert answer.document["submitted"] == []
    assert [each["line"] for each in answer.document["rejected"]] == [17]
    assert stored(rdq) == 0


def test_task_objects_take_what_they_leave_out_from_the_command_line(rdq: Shell) -> None:
    given = lines(
        b'{"payload_json": {"a": 1}, "key": "k", "delay": "1h", "x_new": 7}',
        b'{"payload": "aGk=", "handler_ref": "refund"}',
    )
    answer = rdq(*ONE, "--tasks", "-", "--header", "from=shell", "--json", given=given).document
    first, second = (
        rdq("task", "get", each["id"], "--show-payload", "--json").document
        for each in answer["submitted"]
    )
    assert (first["queue"], first["handler_ref"], second["handler_ref"]) == (
        "billing",
        "charge",
        "refund",
    )
    assert (first["headers"]["rdq.key"], first["headers"]["from"], first["x_new"]) == (
        "k",
        "shell",
        7,
    )
    assert (base64.b64decode(first["payload"]), first["payload_content_type"]) == (
        b'{"a":1}',
        "application/json",
    )


def test_people_see_how_many_and_which_lines_are_bad(rdq: Shell) -> None:
    answer = rdq("submit", "--tasks", "-", given=tasks(40, line17=b"{", line18=b"\x1b[31m"))
    assert "submitted 38 tasks" in answer.out
    assert "refused 2 lines" in answer.out
    assert "line 17: task: is not JSON" in answer.out
    assert "\x1b" not in answer.out + answer.err


def test_a_failing_store_stops_the_submit_and_the_error_says_where(rdq: Shell) -> None:
    with FaultScript(wiring.dynamodb_client()) as script:
        script.reject("AccessDeniedException", "PutItem", nth=6, times=None)
        answer = rdq(*ONE, "--payloads", "-", "--json", given=lines(*[b"x"] * 500))
    text = answer.document["submitted"] + answer.document["rejected"]
    assert answer.code == 5
    assert len(answer.document["submitted"]) == stored(rdq) == 5
    assert sorted(each["line"] for each in text) == list(range(1, len(text) + 1))
    assert len(text) < 500
    assert f"lines after line {len(text)} were not submitted" in answer.error["message"]
