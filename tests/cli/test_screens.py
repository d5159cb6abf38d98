"""Output for people: narrow and wide terminals, colours, old locales, confirmations."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from rdq_core.cli import dlq_redrive, options, queue
from rdq_core.cli.output import Format, Output, prepare_streams
from rdq_core.testing.moto import AtomicMotoServer
from tests.cli.conftest import DeadLetter, Shell
from tests.cli.test_dlq import dead
from tests.cli.test_endings import raising
from tests.support.engines import REGION, Engine
from tests.support.processes import HANGS

RDQ: Final = str(Path(sys.executable).with_name("rdq"))
HEBREW: Final = "התשלום נכשל"
ARABIC: Final = "فشل الدفع"
LONG: Final = "a" * 200


@pytest.fixture
def screens(rdq: Shell, dead_letter: DeadLetter) -> list[list[str]]:
    """Every screen that a night goes through, on tasks whose names and errors are as long as they
    may be.
    """
    rdq("queue", "apply", "-", given=f"config_version: 1\nqueues:\n  {LONG}: {{}}\n".encode())
    rdq("queue", "pause", "email", "--reason", "because " * 20)
    task_id = dead_letter("a_code_that_is_rather_long", "a message " * 60)
    rdq("submit", "-q", LONG, "-H", LONG, "--payload", "x")
    job = rdq(
        "dlq", "redrive", "billing", "--all", "--yes", "--detach", "--reason", "r" * 100, "--json"
    ).document
    return [
        ["status"],
        ["dlq", "list", "billing"],
        ["dlq", "groups"],
        ["dlq", "show", task_id],
        ["dlq", "redrive", "billing", "--all", "--dry-run"],
        ["task", "list", LONG],
        ["job", "list"],
        ["job", "get", job["job_id"]],
        ["audit", "list"],
        ["queue", "list"],
    ]


@pytest.mark.parametrize("columns", [80, 200])
def test_tables_fit_the_screen_and_say_what_is_next(
    rdq: Shell, screens: list[list[str]], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for arguments in screens:
        out = rdq(*arguments).out
        assert "\nnext: " in out, arguments
        for line in table_of(out):
            assert len(line) <= columns, (arguments, line)


def table_of(out: str) -> list[str]:
    """The lines of the tables, which alone have to fit: what is said in sentences and to be copied
    is wrapped.
    """
    lines = out.splitlines()
    found: list[str] = []
    for place, line in enumerate(lines):
        if line and set(line) == {"─"}:
            found += [lines[place - 1], line]
            for row in lines[place + 1 :]:
                if not row:
                    break
                if " is paused: " not in row:
                    found.append(row)
    return found


@pytest.mark.parametrize("columns", [20, 30, 39])
def test_a_screen_too_narrow_for_a_table_gets_a_line_a_column(
    rdq: Shell, dead_letter: DeadLetter, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "a message that is seen whole where there is no table to fit it into"
    ids = [dead_letter("x", message), dead_letter("y", message)]
    monkeypatch.setenv("COLUMNS", str(columns))
    for arguments in (["dlq", "list", "billing"], ["dlq", "groups"]):
        assert table_of(rdq(*arguments).out) == []
    listed = rdq("dlq", "list", "billing").out
    assert listed.count(message) == 2
    assert all(f"id        {task_id[-8:]}\n" in listed for task_id in ids)


def test_a_wide_screen_shows_more(
    rdq: Shell, dead_letter: DeadLetter, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letter(
        "x",
        "a message that is seen whole where there is room for it, "
        "and cut where there is none at all",
    )
    narrow = rdq("dlq", "list", "billing").out
    monkeypatch.setenv("COLUMNS", "200")
    wide = rdq("dlq", "list", "billing").out
    assert "…" in narrow
    assert "none at all (rdq.Abort)" in wide


def test_no_colour_reaches_what_is_no_terminal(rdq: Shell, dead_letter: DeadLetter) -> None:
    dead_letter()
    for arguments in (["status"], ["dlq", "list", "billing"], ["dlq", "groups"]):
        assert "\x1b" not in rdq(*arguments).out


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_gets_colours_unless_it_wants_none(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    Output(Format.TABLE).table(["a"], [("b",)])
    assert ("\x1b[1m" in terminal.getvalue()) is coloured


@pytest.mark.parametrize("text", [HEBREW, ARABIC])
def test_columns_stay_in_their_order_behind_text_that_runs_to_the_left(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Output(Format.TABLE).table(["who", "what"], [(text, "5"), ("ann", "6")])
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first.replace("\u200e", "").split() == [*text.split(), "5"]
    assert first.index("\u200e") < first.index("5")
    assert "\u200e" not in second


def test_an_error_text_with_escape_sequences_does_nothing_to_a_terminal(
    rdq: Shell, dead_letter: DeadLetter
) -> None:
    task_id = dead_letter("bad", f"\x1b]0;owned\x07\x1b[2J {HEBREW} \u202egnp.exe\u2066")
    for arguments in (
        ["dlq", "list", "billing"],
        ["dlq", "groups"],
        ["dlq", "show", task_id, "--stacks"],
    ):
        out = rdq(*arguments).out
        assert not {"\x1b", "\x07", "\u202e", "\u2066"} & set(out)
        assert "\\x1b]0;owned" in out


class Old(io.TextIOWrapper):
    """Standard output in a locale from before UTF-8."""

    def __init__(self, encoding: str) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding=encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "shift_jis"])
def test_a_locale_without_utf_8_gets_plain_characters(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", old := Old(encoding))
    prepare_streams()
    Output(Format.TABLE).table(["who"], [(f"{HEBREW} 🏦 é",)])
    old.flush()
    shown = old.bytes.getvalue().decode(encoding)
    assert "\\U0001f3e6" in shown
    assert "\\u05d4" in shown


def test_a_table_fits_in_a_locale_that_has_longer_words_for_its_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", old := Old("ascii"))
    monkeypatch.setenv("COLUMNS", "80")
    prepare_streams()
    Output(Format.TABLE).table(
        ["who", "what", "why"], [("a", HEBREW, ARABIC * 9), ("b", "c", "d")], stretch=2
    )
    old.flush()
    lines = old.bytes.getvalue().decode("ascii").splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line != line.rstrip()] == []


# -- processes -------------------------------------------------------------------------------------


@pytest.fixture
def served(moto: Engine) -> Any:
    with AtomicMotoServer() as server:
        yield {
            "PATH": os.environ["PATH"],
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_DEFAULT_REGION": REGION,
            "NO_PROXY": "127.0.0.1",
        }


def spawned(
    environment: dict[str, str], *arguments: str, given: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [RDQ, *arguments],
        env=environment,
        input=given,
        capture_output=True,
        timeout=HANGS,
        check=False,
    )


def test_a_process_in_an_old_locale_ends_well(served: dict[str, str]) -> None:
    old = {
        **served,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    assert spawned(old, "init").returncode == 0
    file = "config_version: 1\nqueues:\n  billing: {owner: équipe}\n".encode()
    assert spawned(old, "queue", "apply", "-", given=file).returncode == 0
    listed = spawned(old, "queue", "list")
    assert (listed.returncode, listed.stderr) == (0, b"")
    assert b"\\xe9quipe" in listed.stdout
    assert b"-----" in listed.stdout


def test_a_shell_completes_commands_and_options(served: dict[str, str]) -> None:
    def completed(line: str) -> list[str]:
        words = {
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
            "_RDQ_COMPLETE": "complete_bash",
        }
        return spawned({**served, **words}).stdout.decode().split()

    assert completed("rdq dl") == ["dlq"]
    assert completed("rdq dlq re") == ["redrive"]
    assert completed("rdq dlq redrive --can") == ["--canary", "--canary-wait"]


# -- being asked -----------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands ask for confirmation as on a terminal."""
    for module in (options, dlq_redrive, queue):
        monkeypatch.setattr(module, "can_confirm", lambda _output: True)


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_on_a_terminal_a_preview_is_shown_and_confirmation_asked(
    rdq: Shell, dead_letter: DeadLetter, asked: None, verb: str
) -> None:
    dead_letter()
    refused = rdq("dlq", verb, "billing", "--all", given=b"n\n")
    assert refused.code == 2
    assert "1 task" in refused.err
    assert "write units" in refused.err
    assert len(dead(rdq)) == 1

    assert rdq("dlq", verb, "billing", "--all", given=b"y\n").code == 0
    assert dead(rdq) == []


def test_after_a_no_it_says_that_nothing_was_changed(
    rdq: Shell, dead_letter: DeadLetter, asked: None
) -> None:
    dead_letter()
    assert (
        rdq("dlq", "purge", "billing", "--all", given=b"n\n")
        .err.splitlines()[-1]
        .endswith("nothing was changed")
    )


def test_ctrl_c_at_a_question_ends_its_line(
    rdq: Shell, dead_letter: DeadLetter, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letter()

    monkeypatch.setattr("typer._click.termui.visible_prompt_func", raising(KeyboardInterrupt()))
    answer = rdq("dlq", "purge", "billing", "--all")
    assert (answer.code, answer.err[-1]) == (130, "\n")
    assert len(dead(rdq)) == 1


def test_before_a_queue_is_deleted_its_counts_are_shown(
    rdq: Shell, dead_letter: DeadLetter, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letter()
    refused = rdq("queue", "delete", "billing", given=b"n\n")
    assert (refused.code, "dead       1\n" in refused.err) == (2, True)
    assert rdq("submit", "-q", "billing", "-H", "charge", "--payload", "x").code == 0


def test_a_cancel_by_filter_asks_too(rdq: Shell, asked: None) -> None:
    rdq("submit", "-q", "billing", "-H", "charge", "--payload", "x")
    refused = rdq("task", "cancel", "-q", "billing", "--all", given=b"n\n")
    assert (refused.code, "cancel 1 task of billing for good?" in refused.err) == (2, True)
    assert rdq("queue", "stats", "billing", "--json").document["pending"] == 1
    assert rdq("task", "cancel", "-q", "billing", "--all", given=b"y\n").code == 0
    assert rdq("queue", "stats", "billing", "--json").document["pending"] == 0
