"""`rdq queue` and `rdq audit`."""

from datetime import timedelta
from pathlib import Path

import pytest

from rdq_core.runtime import principal
from rdq_core.runtime.wiring import Parts, connect
from rdq_core.testing.clock import FrozenClock
from tests.cli.conftest import ANN, QUEUES, DeadLetter, KnowsAnn, Shell

CHANGED = QUEUES.replace("max_redrives: 2", "max_redrives: 3").encode()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FrozenClock:
    """The clock of all commands of the test."""
    from datetime import UTC, datetime

    from rdq_core.cli import connection

    clock = FrozenClock(datetime.now(UTC))

    def connected(**options: object) -> Parts:
        return connect(clock=clock, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(connection, "connect", connected)
    return clock


# -- files -----------------------------------------------------------------------------------------


def test_a_valid_file_is_checked_without_any_aws(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)

    answer = shell("queue", "check", str(file), "--json")
    assert answer.document["items"] == [
        {"queue": "billing", "result": "valid"},
        {"queue": "email", "result": "valid"},
    ]
    assert f"next: rdq queue diff {file}" in shell("queue", "check", str(file)).out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config_version: 1\nqueues: {a: {retry: {max_atempts: 3}}}", "did you mean max_attempts?"),
        ("config_version: 1", "the file names no queue"),
        ("config_version: 9", "config_version: 9 is refused"),
    ],
)
def test_an_invalid_file_is_wrong_input(shell: Shell, text: str, expected: str) -> None:
    answer = shell("queue", "check", "-", "--json", given=text.encode())
    assert (answer.code, answer.out, answer.error["code"]) == (2, "", "config_invalid")
    assert expected in answer.error["message"]


def test_a_file_that_is_no_yaml_is_named(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("queues: {", encoding="utf-8")
    message = shell("queue", "check", str(file), "--json").error["message"]
    assert message.startswith(f"{file}: line ")
    assert (
        shell("queue", "check", "-", "--json", given=b"a: [")
        .error["message"]
        .startswith("standard input: line ")
    )


def test_several_problems_of_a_file_are_told_line_by_line(shell: Shell) -> None:
    text = b"config_version: 1\nqueues: {a: {retry: {max_atempts: 3, jiter: 1}, ownr: x}}"
    expected = shell("queue", "check", "-", given=text).err
    assert "\\n" not in expected
    assert len(expected.splitlines()) == 4


def test_a_file_that_differs_ends_with_four_and_one_that_does_not_with_zero(rdq: Shell) -> None:
    same = rdq("queue", "diff", "-", "--json", given=QUEUES.encode())
    assert (same.code, [each["result"] for each in same.document["items"]]) == (
        0,
        ["unchanged", "unchanged"],
    )

    differs = rdq("queue", "diff", "-", "--json", given=CHANGED)
    assert (differs.code, differs.err) == (4, "")
    assert differs.document["items"][0] == {
        "queue": "billing",
        "result": "changed",
        "revision": 1,
        "changes": [{"key": "limits.max_redrives", "stored": 2, "file": 3}],
    }
    assert rdq("queue", "get", "billing", "--json").document["revision"] == 1


def test_a_difference_is_shown_as_a_table_with_the_next_command(rdq: Shell) -> None:
    out = rdq("queue", "diff", "-", given=CHANGED + b"  sms: {}\n").out
    assert "billing: would be changed" in out
    assert "email: matches the file" in out
    assert "sms: would be created" in out
    assert "next: rdq queue apply FILE" in out


# -- set -------------------------------------------------------------------------------------------


def test_what_is_set_is_shown_with_the_layer_that_set_it(rdq: Shell) -> None:
    done = rdq(
        "queue",
        "set",
        "billing",
        "retry.max_attempts=9",
        "--reason",
        "slow bank",
        "--for",
        "2h",
        "--json",
    )
    assert done.document["override"]["layer"] == {"retry": {"max_attempts": 9}}
    assert done.document["override"]["expires_at"] is not None

    people = rdq("queue", "get", "billing").out
    assert "slow bank" in people
    assert "override" in next(
        line for line in people.splitlines() if line.startswith("retry.max_attempts")
    )
    assert "override" in next(
        line for line in rdq("queue", "list").out.splitlines() if line.startswith("billing")
    )


def test_a_set_for_people_tells_before_and_now_and_how_to_undo_it(rdq: Shell) -> None:
    out = rdq("queue", "set", "billing", "retry.max_attempts=9", "--reason", "slow bank").out
    assert "billing: set until it is cleared" in out
    assert "rdq queue set billing --clear" in out

    cleared = rdq("queue", "set", "billing", "--clear")
    assert (cleared.code, "no override" in cleared.out) == (0, True)
    assert rdq("queue", "get", "billing", "--json").document["override"] is None


def test_an_override_ends_when_its_time_is_over(rdq: Shell, clock: FrozenClock) -> None:
    rdq("queue", "set", "billing", "retry.max_attempts=9", "--reason", "slow bank", "--for", "2h")
    clock.advance("2h")

    answer = rdq("queue", "get", "billing", "--json").document
    assert (answer["override"]["in_force"], answer["effective"]["retry"]["max_attempts"]) == (
        False,
        5,
    )
    assert "expired" in rdq("queue", "get", "billing").out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["billing"], "give KEY=VALUE, or --clear"),
        (["billing", "retry.jitter=0.5"], "give --reason TEXT"),
        (["billing", "retry.jitter=0.5", "--clear"], "without KEY=VALUE"),
        (["billing", "--for", "2h", "--clear"], "without KEY=VALUE"),
        (["billing", "retry.jitter=0.5", "--reason", "r", "--for", "soon"], "or never"),
        (["billing", "retry.jitter=5", "--reason", "r"], "a number from 0 to 1"),
        (
            ["billing", "execution.heartbeat=2m", "--reason", "r"],
            "an interval shorter than the lease (1m)",
        ),
    ],
)
def test_a_set_that_makes_no_sense_is_wrong_use(
    rdq: Shell, arguments: list[str], expected: str
) -> None:
    answer = rdq("queue", "set", *arguments, "--json")
    assert (answer.code, answer.out) == (2, "")
    assert expected in answer.error["message"]


def test_a_deploy_suspends_an_override_that_it_contradicts_and_says_so(rdq: Shell) -> None:
    rdq("queue", "set", "email", "execution.heartbeat=20s", "--reason", "slow disk")
    leased = QUEUES.replace(
        "email: {}", "email: {execution: {lease: 10s, handler_timeout: 9s}}"
    ).encode()

    answer = rdq("queue", "apply", "-", given=leased)

    assert (answer.code, "the override of email contradicts" in answer.out) == (0, True)
    assert "SUSPENDED" in rdq("queue", "list").out
    assert (
        "SUSPENDED: it contradicts the declared settings (slow disk)"
        in rdq("queue", "get", "email").out
    )
    assert "override_suspended" not in rdq("queue", "get", "email", "--json").document["declared"]


# -- pause and delete ------------------------------------------------------------------------------


def test_a_pause_is_shown_and_undone(rdq: Shell) -> None:
    paused = rdq("queue", "pause", "billing", "--reason", "bank is down", "--json").document
    assert (paused["paused"], paused["pause_reason"], paused["changed"]) == (
        True,
        "bank is down",
        True,
    )
    assert "PAUSED" in rdq("queue", "list").out
    assert "(bank is down)" in rdq("queue", "get", "billing").out
    assert rdq("queue", "stats", "billing", "--json").document["paused"] is True
    assert rdq("submit", "-q", "billing", "-H", "charge", "--payload", "x").code == 0

    assert "next: rdq queue stats billing" in rdq("queue", "resume", "billing").out
    assert rdq("queue", "resume", "billing", "--json").document["changed"] is False


def test_a_queue_is_deleted_in_two_steps(rdq: Shell, clock: FrozenClock) -> None:
    begun = rdq("queue", "delete", "email", "--reason", "moved")
    assert (begun.code, "email refuses new tasks" in begun.out) == (0, True)
    assert "DELETING" in rdq("queue", "list").out
    refused = rdq("submit", "-q", "email", "-H", "mail", "--payload", "x", "--json")
    assert (refused.code, refused.error["code"]) == (2, "queue_not_found")
    assert "rdq queue apply" in refused.error["hint"]

    clock.advance(timedelta(minutes=6))
    assert rdq("queue", "delete", "email", "--json").document["state"] == "deleted"

    assert [each["queue"] for each in rdq("queue", "list", "--json").document["items"]] == [
        "billing"
    ]
    gone = rdq("queue", "get", "email", "--json")
    assert (gone.code, gone.error["code"]) == (3, "queue_not_found")
    assert (
        rdq("queue", "apply", "-", "--json", given=QUEUES.encode()).document["items"][1]["result"]
        == "created"
    )


def test_dead_tasks_keep_a_queue_and_the_next_command_shows_them(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    dead_letter()
    out = rdq("queue", "delete", "billing", "--yes").out
    assert "next: rdq dlq groups billing" in out


@pytest.mark.parametrize("command", ["pause", "resume", "delete", "ladder"])
def test_an_unknown_queue_is_not_found(rdq: Shell, command: str) -> None:
    answer = rdq("queue", command, "biling", "--json")
    assert (answer.code, answer.error["hint"]) == (3, "did you mean billing?")


# -- ladder ----------------------------------------------------------------------------------------


def test_a_ladder_has_every_attempt_and_the_end(rdq: Shell) -> None:
    rdq(
        "queue",
        "set",
        "billing",
        "retry.max_attempts=3",
        "retry.initial_backoff=10s",
        "--reason",
        "r",
    )

    assert rdq("queue", "ladder", "billing", "--json").document == {
        "queue": "billing",
        "attempts": [
            {"attempt": 1, "earliest_ms": 0, "middle_ms": 0, "latest_ms": 0},
            {"attempt": 2, "earliest_ms": 8000, "middle_ms": 10000, "latest_ms": 12000},
            {"attempt": 3, "earliest_ms": 24000, "middle_ms": 30000, "latest_ms": 36000},
        ],
        "dies": {
            "earliest_ms": 24000,
            "middle_ms": 30000,
            "latest_ms": 36000,
            "at_worst_ms": 171000,
        },
    }
    out = rdq("queue", "ladder", "billing").out
    assert "A task that always fails is dead 24s to 36s after its" in out
    assert "2m 51s after it at the latest" in out


# -- audit -----------------------------------------------------------------------------------------


def test_what_was_done_is_listed_with_who_and_why(rdq: Shell) -> None:
    rdq("queue", "set", "billing", "retry.max_attempts=9", "--reason", "slow bank")

    items = rdq("audit", "list", "billing", "--json").document["items"]
    assert [(each["operation"], each["phase"]) for each in items[:2]] == [
        ("queue.set", "done"),
        ("queue.set", "intent"),
    ]
    assert {(each["principal"], each["verified"]) for each in items} == {(ANN, True)}
    people = rdq("audit", "list").out
    lines = people.splitlines()[2:5]  # an operation a line, not a record
    assert [line.split()[1:5] for line in lines] == [
        ["set", "done", "billing", "ann"],
        ["apply", "done", "email", "ann"],
        ["apply", "done", "billing", "ann"],
    ]
    assert ["slow bank" in lines[0], 'owner "team-payments"' in lines[2]] == [True, True]
    assert max(map(len, people.splitlines())) <= 80


def test_the_list_is_filtered_and_paged(rdq: Shell) -> None:
    assert rdq("audit", "list", "--principal", "bob", "--json").document["items"] == []
    assert "no records" in rdq("audit", "list", "nope").out
    first = rdq("audit", "list", "--page-size", "3", "--json").document
    second = rdq("audit", "list", "--cursor", first["next_cursor"], "--json").document
    ids = [each["id"] for each in first["items"] + second["items"]]
    assert (len(first["items"]), len(ids), second["next_cursor"]) == (3, 4, None)
    assert ids == sorted(ids, reverse=True)
    assert rdq("audit", "list", "--cursor", "nonsense", "--json").code == 4
    assert rdq("audit", "list", "--since", "soon", "--json").code == 2


def test_an_unverified_principal_is_marked(rdq: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import NoCredentialsError

    def refuses(_: object) -> dict[str, str]:
        raise NoCredentialsError

    monkeypatch.setattr(KnowsAnn, "get_caller_identity", refuses)
    monkeypatch.setenv("RDQ_PRINCIPAL", "ci-job-17")
    rdq("queue", "pause", "billing")

    record = rdq("audit", "list", "--json").document["items"][0]
    assert (record["principal"], record["verified"]) == ("ci-job-17", False)
    assert "ci-job-17?" in rdq("audit", "list").out


def test_aws_itself_says_who_asks(moto: object, monkeypatch: pytest.MonkeyPatch) -> None:
    who = principal.identified()

    assert (who.verified, who.name.startswith("arn:aws:")) == (True, True)
    monkeypatch.delenv("RDQ_PRINCIPAL", raising=False)
    assert "@" in principal.claimed({}).name


@pytest.mark.parametrize(
    "arguments",
    [
        ["queue", "ladder", "billing"],
        [
            "queue",
            "set",
            "billing",
            "owner=a-team-with-a-rather-long-name-that-fills-the-line",
            "--reason",
            "why " * 20,
        ],
        ["queue", "pause", "billing"],
        ["queue", "resume", "billing"],
        ["queue", "delete", "billing"],
        ["audit", "list"],
    ],
)
def test_screens_for_people_fit_80_columns_and_say_what_is_next(
    rdq: Shell, arguments: list[str]
) -> None:
    out = rdq(*arguments).out
    assert "\nnext: " in out
    assert max(map(len, out.splitlines())) <= 80
