"""`rdq task` and `rdq queue`: showing tasks, results and settings."""

import base64
import hashlib

import pytest

from tests.cli.conftest import QUEUES, DeadLetter, Shell, run_once


def test_a_read_gives_size_and_digest_instead_of_the_payload(rdq: Shell) -> None:
    task_id = rdq(
        "submit", "-q", "billing", "-H", "charge", "--payload", "secret", "--json"
    ).document["submitted"][0]["id"]
    answer = rdq("task", "get", task_id, "--json")
    assert "payload" not in answer.document
    assert answer.document["payload_size"] == 6
    assert answer.document["payload_sha256"] == hashlib.sha256(b"secret").hexdigest()
    assert "secret" not in rdq("task", "get", task_id).out
    assert "secret" in rdq("task", "get", task_id, "--show-payload").out


@pytest.mark.parametrize(
    ("returned", "expected"),
    [({"charged": 5}, '{"charged":5}'), (None, "nothing"), ("\x1b[2J", "\\x1b[2J")],
)
def test_the_result_of_a_task_is_what_its_handler_has_returned(
    rdq: Shell, returned: object, expected: str
) -> None:
    def charge(_: bytes) -> object:
        return returned

    task_id = submitted(rdq)
    run_once(charge)
    shown = rdq("task", "result", task_id)
    assert (shown.code, expected in shown.out.partition("\nnext: ")[0]) == (0, True)
    answer = rdq("task", "result", task_id, "--json").document
    assert (answer["id"], answer["status"]) == (task_id, "SUCCEEDED")
    assert (
        returned is None
        or expected.encode().decode("unicode_escape") == base64.b64decode(answer["result"]).decode()
    )


def test_a_task_that_has_not_succeeded_has_no_result(rdq: Shell, dead_letter: DeadLetter) -> None:
    for task_id, status in ((dead_letter(), "DEAD"), (submitted(rdq), "PENDING")):
        answer = rdq("task", "result", task_id, "--json")
        assert (answer.code, answer.out, answer.error["id"]) == (4, "", task_id)
        assert status in answer.error["message"]
    assert rdq("task", "result", "01J00000000000000000000000").code == 3


def test_an_unknown_task_is_not_found(rdq: Shell) -> None:
    answer = rdq("task", "get", "01J00000000000000000000000", "--json")
    assert (answer.code, answer.out, answer.error["code"]) == (3, "", "task_not_found")
    assert answer.error["id"] == "01J00000000000000000000000"


@pytest.mark.parametrize(
    "arguments", [[], ["not-an-id"], ["--key", "k"], ["01J00000000000000000000000", "--key", "k"]]
)
def test_asking_for_a_task_in_no_known_way_is_wrong_use(rdq: Shell, arguments: list[str]) -> None:
    assert rdq("task", "get", *arguments, "--json").code == 2


def test_asking_for_a_task_without_a_valid_id_says_how_to_ask(rdq: Shell) -> None:
    for arguments in ([], ["order-17"]):
        assert (
            "rdq task get -q QUEUE --key KEY"
            in rdq("task", "get", *arguments, "--json").error["hint"]
        )


def submitted(rdq: Shell) -> str:
    answer = rdq("submit", "-q", "billing", "-H", "charge", "--payload", "x", "--json").document
    task_id: str = answer["submitted"][0]["id"]
    return task_id


def test_a_cancelled_task_is_stopped_and_another_cancel_names_its_state(rdq: Shell) -> None:
    task_id = submitted(rdq)
    counts = {"selected": 1, "done": 0, "skipped": 0, "failed": 0, "dry_run": True, "job_id": None}
    assert rdq("task", "cancel", task_id, "--dry-run", "--json").document == counts
    assert rdq("task", "cancel", task_id, "--json").document == {
        **counts,
        "done": 1,
        "dry_run": False,
    }
    assert rdq("task", "get", task_id, "--json").document["status"] == "CANCELLED"
    for arguments in ([], ["--dry-run"]):
        again = rdq("task", "cancel", task_id, *arguments, "--json")
        assert (again.code, again.error["code"], again.error["id"]) == (4, "task_conflict", task_id)
        assert "CANCELLED" in again.error["message"]


def test_of_several_tasks_those_that_can_be_cancelled_are(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    dead, first, second = dead_letter(), submitted(rdq), submitted(rdq)
    answer = rdq("task", "cancel", first, dead, second)
    assert answer.code == 4
    assert "2 tasks cancelled, 1 skipped" in answer.out
    assert "DEAD" in answer.err


@pytest.mark.parametrize("condition", [["--all"], ["--status", "IN_FLIGHT"], ["--handler", "mail"]])
def test_ids_and_conditions_exclude_each_other(rdq: Shell, condition: list[str]) -> None:
    task_id = submitted(rdq)
    assert rdq("task", "cancel", task_id, *condition, "--json").code == 2
    assert rdq("task", "get", task_id, "--json").document["status"] == "PENDING"


def test_what_cannot_be_cancelled_is_told(rdq: Shell) -> None:
    assert rdq("task", "cancel", "01J00000000000000000000000", "--json").code == 3
    assert rdq("task", "cancel", "order-17", "--json").code == 2
    assert rdq("task", "cancel", "--json").code == 2


def test_control_characters_never_reach_the_terminal(rdq: Shell, dead_letter: DeadLetter) -> None:
    task_id = dead_letter("bad", "\x1b[31mred\x07 \u202e and \x9b more")
    for arguments in (
        ["task", "get", task_id],
        ["dlq", "show", task_id],
        ["dlq", "list", "billing"],
        ["dlq", "groups"],
    ):
        out = rdq(*arguments).out
        assert "\\x1b[31mred" in out
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)


def test_screens_for_people_fit_80_columns_and_say_what_is_next(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    task_id = dead_letter("a_code_that_is_rather_long", "a message " * 6)
    screens = (
        ["queue", "list"],
        ["queue", "get", "billing"],
        ["queue", "stats", "billing"],
        ["dlq", "list", "billing"],
        ["dlq", "groups"],
        ["dlq", "redrive", "billing", "--all", "--dry-run"],
        ["task", "get", task_id],
    )
    for arguments in screens:
        out = rdq(*arguments).out
        assert "\nnext: " in out
        framed = [
            line for line in out.splitlines() if not line.startswith("  ")
        ]  # a traceback stays whole
        assert max(map(len, framed)) <= 80


def test_apply_says_what_became_of_each_queue(rdq: Shell) -> None:
    changed = QUEUES.replace("team-payments", "team-money") + "  orders: {}\n"
    answer = rdq("queue", "apply", "-", "--json", given=changed.encode()).document
    assert [(each["queue"], each["result"], each["revision"]) for each in answer["items"]] == [
        ("billing", "changed", 2),
        ("email", "unchanged", 1),
        ("orders", "created", 1),
    ]
    assert answer["next_cursor"] is None


def test_queues_are_listed_and_shown(rdq: Shell) -> None:
    assert [each["queue"] for each in rdq("queue", "list", "--json").document["items"]] == [
        "billing",
        "email",
    ]
    assert (
        rdq("queue", "get", "billing", "--json").document["effective"]["limits"]["max_payload_size"]
        == "1KiB"
    )


def test_stats_have_their_fixed_shape(rdq: Shell) -> None:
    assert rdq("queue", "stats", "email", "--json").document == {
        "queue": "email",
        "pending": 0,
        "in_flight": 0,
        "dead": 0,
        "oldest_due_at": None,
        "oldest_pending_age_seconds": None,
        "paused": False,
        "exact": True,
    }


@pytest.mark.parametrize("command", ["get", "stats"])
def test_an_unknown_queue_is_not_found(rdq: Shell, command: str) -> None:
    answer = rdq("queue", command, "nope", "--json")
    assert (answer.code, answer.error["code"]) == (3, "queue_not_found")


def test_a_bad_file_is_refused_whole_by_its_path(rdq: Shell) -> None:
    bad = (
        QUEUES.replace("owner: team-payments", "owner: changed")
        + "  orders: {retry: {max_attempts: 0}}\n"
    )
    answer = rdq("queue", "apply", "-", "--json", given=bad.encode())
    assert (answer.code, answer.error["code"]) == (2, "config_invalid")
    assert "queues.orders.retry.max_attempts" in answer.error["message"]
    assert rdq("queue", "get", "billing", "--json").document["revision"] == 1


def test_a_list_as_jsonl_is_an_object_a_line(rdq: Shell) -> None:
    assert len(rdq("queue", "list", "-o", "jsonl").out.splitlines()) == 2
