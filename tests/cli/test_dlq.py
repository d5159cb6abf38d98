"""`rdq dlq`: showing dead tasks and sending them back."""

import base64
from pathlib import Path

import pytest

from tests.cli.conftest import DeadLetter, Shell, sweep_once

ENTRY = {
    "id",
    "queue",
    "handler_ref",
    "handler_version",
    "dead_at",
    "created_at",
    "code",
    "type",
    "message",
    "fingerprint",
    "attempts",
    "redrive_count",
    "payload_size",
}


def dead(rdq: Shell, *arguments: str) -> list[str]:
    return [
        each["id"] for each in rdq("dlq", "list", "billing", *arguments, "--json").document["items"]
    ]


def test_the_list_has_its_fixed_shape(rdq: Shell, dead_letter: DeadLetter) -> None:
    task_id = dead_letter()
    answer = rdq("dlq", "list", "billing", "--json").document
    (entry,) = answer["items"]
    assert answer["next_cursor"] is None
    assert entry.keys() == ENTRY
    assert (entry["id"], entry["code"], entry["message"]) == (
        task_id,
        "card_expired",
        "the card has expired",
    )


def test_pages_go_on_where_the_cursor_says(rdq: Shell, dead_letter: DeadLetter) -> None:
    ids = [dead_letter() for _ in range(5)]
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = rdq("dlq", "list", "billing", "--page-size", "2", *cursor, "--json").document
        seen += [each["id"] for each in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = ["--cursor", page["next_cursor"]]
    assert sorted(seen) == sorted(ids)


def test_a_foreign_or_garbled_cursor_is_stale(rdq: Shell, dead_letter: DeadLetter) -> None:
    for _ in range(3):
        dead_letter()
    cursor = rdq("dlq", "list", "billing", "--page-size", "1", "--json").document["next_cursor"]
    for arguments in (["billing", "--type", "x*"], ["email"]):
        answer = rdq("dlq", "list", *arguments, "--cursor", cursor, "--json")
        assert (answer.code, answer.error["code"]) == (4, "stale_cursor")
        assert "conditions" in answer.error["hint"]
    for garbled in ("", "%%%", "AAAA", cursor[:-3], "é"):
        answer = rdq("dlq", "list", "billing", "--cursor", garbled, "--json")
        assert (answer.code, answer.error["code"]) == (4, "stale_cursor")


def test_filters_narrow_the_list(rdq: Shell, dead_letter: DeadLetter) -> None:
    task_id = dead_letter()
    assert (
        dead(rdq, "--type", "*Abort")
        == dead(rdq, "--since", "1h")
        == dead(rdq, "--handler", "charge")
        == [task_id]
    )
    assert (
        dead(rdq, "--type", "nothing*")
        == dead(rdq, "--until", "1h")
        == dead(rdq, "--handler", "other")
        == []
    )


@pytest.mark.parametrize(
    "arguments", [["--since", "yesterday"], ["--page-size", "0"], ["--page-size", "501"]]
)
def test_a_bad_condition_is_wrong_use(rdq: Shell, arguments: list[str]) -> None:
    assert rdq("dlq", "list", "billing", *arguments, "--json").code == 2


def test_a_dead_task_is_shown_with_its_history(rdq: Shell, dead_letter: DeadLetter) -> None:
    task_id = dead_letter()
    task = rdq("dlq", "show", task_id, "--json").document
    assert task["failure"]["code"] == "card_expired"
    assert [attempt["outcome"] for attempt in task["attempts"]] == ["PERMANENT_FAILURE"]
    assert "payload" not in task
    assert "the card has expired" in rdq("dlq", "show", task_id).out


def test_a_living_task_is_not_in_the_dlq(rdq: Shell) -> None:
    submitted = rdq("submit", "-q", "billing", "-H", "charge", "--payload", "x", "--json").document[
        "submitted"
    ]
    answer = rdq("dlq", "show", submitted[0]["id"], "--json")
    assert (answer.code, answer.error["code"]) == (3, "task_not_found")
    assert "PENDING" in answer.error["message"]


def test_groups_count_what_died_of_the_same(rdq: Shell, dead_letter: DeadLetter) -> None:
    ids = [dead_letter("a"), dead_letter("a"), dead_letter("b")]
    first, second = rdq("dlq", "groups", "billing", "--json").document["items"]
    assert (first["count"], first["code"], second["count"], second["code"]) == (2, "a", 1, "b")
    assert first["example_id"] in ids[:2]
    assert first["first_seen_at"] <= first["last_seen_at"]


def test_a_dry_run_counts_and_changes_nothing(rdq: Shell, dead_letter: DeadLetter) -> None:
    ids = [dead_letter(), dead_letter()]
    answer = rdq("dlq", "redrive", "billing", "--all", "--dry-run", "--json")
    assert answer.document == {
        "selected": 2,
        "done": 0,
        "skipped": 0,
        "failed": 0,
        "dry_run": True,
        "job_id": None,
    }
    assert sorted(dead(rdq)) == sorted(ids)


def test_a_group_is_sent_back_and_the_others_stay(rdq: Shell, dead_letter: DeadLetter) -> None:
    first, second, other = dead_letter("a"), dead_letter("a"), dead_letter("b")
    group = rdq("dlq", "groups", "billing", "--json").document["items"][0]["fingerprint"]
    answer = rdq("dlq", "redrive", "billing", "--group", group, "--yes", "--json")
    job_id = answer.document["job_id"]
    assert answer.document == {
        "selected": 2,
        "done": 2,
        "skipped": 0,
        "failed": 0,
        "dry_run": False,
        "job_id": job_id,
    }
    assert rdq("job", "get", job_id, "--json").document["state"] == "done"
    assert dead(rdq) == [other]
    for task_id in (first, second):
        task = rdq("task", "get", task_id, "--json").document
        assert (task["status"], task["attempt_count"], task["redrive_count"]) == ("PENDING", 0, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--all", "--type", "x"],
        ["01J00000000000000000000000", "--all"],
        ["--group", "v1:1", "--handler", "h"],
        ["nonsense"],
    ],
)
def test_anything_but_one_kind_of_selection_is_wrong_use(
    rdq: Shell, dead_letter: DeadLetter, arguments: list[str]
) -> None:
    task_id = dead_letter()
    answer = rdq("dlq", "redrive", "billing", *arguments, "--json")
    assert (answer.code, answer.out) == (2, "")
    assert dead(rdq) == [task_id]


def test_one_task_that_cannot_go_back_is_told_by_its_own_error(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    task_id = dead_letter()
    assert rdq("dlq", "redrive", "billing", "01J00000000000000000000000", "--json").code == 3
    assert rdq("dlq", "redrive", "email", task_id, "--json").error["code"] == "task_conflict"
    rdq("dlq", "redrive", "billing", task_id)
    answer = rdq("dlq", "redrive", "billing", task_id, "--json")
    assert (answer.code, answer.error["code"], answer.error["id"]) == (4, "task_conflict", task_id)


def test_of_several_tasks_those_that_can_go_back_do(rdq: Shell, dead_letter: DeadLetter) -> None:
    task_id = dead_letter()
    answer = rdq("dlq", "redrive", "billing", task_id, "01J00000000000000000000000", "--json")
    assert answer.code == 4
    assert (answer.document["selected"], answer.document["done"], answer.document["skipped"]) == (
        2,
        1,
        1,
    )


def test_max_redrives_refuses_and_force_overrides(rdq: Shell, dead_letter: DeadLetter) -> None:
    task_id = dead_letter()
    for _ in range(2):
        assert rdq("dlq", "redrive", "billing", task_id).code == 0
        sweep_once("again", "it died again")
    assert rdq("dlq", "redrive", "billing", task_id, "--json").code == 4
    assert rdq("dlq", "redrive", "billing", task_id, "--force", "--json").code == 0


def test_a_redrive_can_change_what_made_the_task_die(
    rdq: Shell, dead_letter: DeadLetter, tmp_path: Path
) -> None:
    task_id = dead_letter("bad", "bad", "--handler-version", "v1")
    (tmp_path / "body").write_bytes(b"better")
    edits = ("--unpin", "--set-handler", "refund", "--payload-file", str(tmp_path / "body"))
    assert rdq("dlq", "redrive", "billing", task_id, *edits).code == 0
    task = rdq("task", "get", task_id, "--show-payload", "--json").document
    assert (task["handler_ref"], task["handler_version"]) == ("refund", None)
    assert base64.b64decode(task["payload"]) == b"better"


@pytest.mark.parametrize(
    "edits",
    [
        ["--unpin", "--set-version", "v2"],
        ["--set-handler", "Nö"],
        ["--set-version", ""],
        ["--payload-file", "/nonexistent"],
    ],
)
def test_a_bad_edit_is_wrong_use_and_sends_nothing_back(
    rdq: Shell, dead_letter: DeadLetter, edits: list[str]
) -> None:
    task_id = dead_letter()
    assert rdq("dlq", "redrive", "billing", task_id, *edits, "--json").code == 2
    assert dead(rdq) == [task_id]


def test_a_payload_is_edited_for_one_task_at_a_time(rdq: Shell, dead_letter: DeadLetter) -> None:
    dead_letter()
    assert (
        rdq("dlq", "redrive", "billing", "--all", "--payload-file", "-", "--json", given=b"x").code
        == 2
    )


def test_many_are_not_sent_back_without_a_terminal_to_confirm_on(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    task_id = dead_letter()
    for selection in (["--all"], ["--since", "1h"], ["--handler", "charge"]):
        answer = rdq("dlq", "redrive", "billing", *selection, "--json")
        assert (answer.code, answer.out) == (2, "")
        assert "--yes" in answer.error["hint"]
    assert dead(rdq) == [task_id]
    assert rdq("dlq", "redrive", "billing", "--all", "--yes").code == 0
    assert dead(rdq) == []


def test_a_group_that_is_not_there_is_not_found(rdq: Shell, dead_letter: DeadLetter) -> None:
    dead_letter()
    answer = rdq("dlq", "redrive", "billing", "--group", "v1:nothing", "--json")
    assert (answer.code, answer.out) == (3, "")
    assert answer.error["hint"] == "rdq dlq groups billing"


def test_filters_that_choose_nothing_say_so_and_where_to_look(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    dead_letter()
    answer = rdq("dlq", "redrive", "billing", "--type", "nothing*")
    assert answer.code == 0
    assert answer.out.startswith("no matching dead tasks in billing")
    assert "next: rdq dlq list billing" in answer.out


def test_a_selection_that_is_none_names_the_options(rdq: Shell) -> None:
    hint = rdq("dlq", "redrive", "billing", "--json").error["hint"]
    assert all(
        option in hint
        for option in ("--group", "--all", "--type", "--handler", "--since", "--until")
    )


@pytest.mark.parametrize(
    ("command", "next_one"), [("redrive", "redrive QUEUE"), ("list", "show"), ("groups", "show")]
)
def test_an_id_in_the_place_of_the_queue_is_recognised(
    rdq: Shell, command: str, next_one: str
) -> None:
    task_id = "01J00000000000000000000000"
    answer = rdq("dlq", command, task_id, "--json")
    assert (answer.code, answer.error["code"]) == (2, "usage")
    assert answer.error["hint"] == f"rdq dlq {next_one} {task_id}"


def test_the_message_is_seen_where_its_type_and_code_leave_no_room(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    task_id = dead_letter("a_code_that_is_rather_long_for_a_column", "the card has expired")
    for arguments in (["dlq", "list", "billing"], ["dlq", "groups"], ["dlq", "show", task_id]):
        table = rdq(*arguments).out.partition("\n\nrdq_core")[0]
        assert "the card has expired" in table.partition("Abort:")[0]


def test_the_ids_of_a_screen_are_short_and_can_be_typed(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    ids = [dead_letter() for _ in range(3)]
    rows = rdq("dlq", "list", "billing").out.splitlines()[2:5]
    assert [row.split()[0] for row in rows] == [task_id[-8:] for task_id in ids]
    short = ids[1][-8:]
    assert rdq("dlq", "show", short, "--json").document["id"] == ids[1]
    assert rdq("task", "get", short.lower(), "--json").document["id"] == ids[1]
    assert rdq("dlq", "redrive", "billing", short, "--json").document["done"] == 1
    assert rdq("task", "cancel", short, "--json").document["done"] == 1
    assert dead(rdq) == [ids[0], ids[2]]


def test_a_short_id_that_means_nothing_or_several_changes_nothing(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    ids = [dead_letter() for _ in range(2)]
    answer = rdq("dlq", "redrive", "billing", "ZZZZZZ", "--json")
    assert (answer.code, answer.error["code"]) == (3, "task_not_found")
    assert rdq("dlq", "redrive", "billing", ids[0][:6], "--json").code == 2
    assert dead(rdq) == ids
