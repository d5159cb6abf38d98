"""A canary in payloads, header values, results and handlers' variables, and every command of the command line."""

import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from rdq_core import Registry
from rdq_core.cli.app import app
from rdq_core.engine.sweep import SweepLimits
from rdq_core.runtime.log import LogSink
from rdq_core.runtime.wiring import connect
from tests.cli.conftest import QUEUES, Ended, Shell

CARD: Final = "canary-card-7f3a9c"
"""The payload, what handlers return, and what is in their variables: for whoever asks for payload or result alone."""
CUSTOMER: Final = "canary-customer-51d2"
"""A header's value: for whoever reads the task, and in no list, log or error."""
READS: Final = {"task get", "dlq show"}
ELSEWHERE: Final = {"demo", "local", "init", "worker"}
"""They show no task, or one that is their own; the worker's log is that of the engine, which has a test like this."""


def leaves(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command."""
    command = command or typer.main.get_command(app)
    if not hasattr(command, "commands"):
        yield " ".join(path)
        return
    for name, below in command.commands.items():
        yield from leaves(below, (*path, name))


def sweep() -> None:
    """Run what is due: `pays` returns the card, `fails` dies with it in a variable."""
    registry = Registry(queues=["billing"])

    @registry.handler("pays")
    def pays(payload: bytes) -> bytes:
        return payload

    @registry.handler("fails")
    def fails(payload: bytes) -> None:
        card = payload + payload
        raise KeyError(len(card))

    limits = SweepLimits(horizon=timedelta(0), linger=timedelta(0))
    connect(events=LogSink()).sweeper(registry, serves=["billing"], worker="test").sweep(limits)


@pytest.fixture
def typed(rdq: Shell, tmp_path: Path) -> dict[str, list[Ended]]:
    """What each command has said, as a table and as JSON, of tasks in every state."""
    said: dict[str, list[Ended]] = {}

    def typed(command: str, *arguments: str, given: bytes = b"") -> Ended:
        for form in ("table", "json"):
            said.setdefault(command, []).append(rdq(*command.split(), *arguments, "-o", form, given=given))
        return said[command][-1]

    def kept(ref: str) -> str:
        given = ("-q", "billing", "-H", ref, "--payload", CARD, "--header", f"customer={CUSTOMER}")
        task_id: str = typed("submit", *given).document["submitted"][0]["id"]
        return task_id

    (tmp_path / "queues.yaml").write_text(QUEUES)
    lines = f'{{"queue": "nowhere", "handler_ref": "pays", "payload_text": "{CARD}"}}\n{CARD}\n'.encode()
    typed("submit", "--tasks", "-", given=lines)
    rdq("queue", "set", "billing", "retry.max_attempts=1", "--reason", "at once")
    paid, dead, other = kept("pays"), kept("fails"), kept("fails")
    sweep()
    waiting = kept("pays")
    for task_id in (paid, dead, waiting):
        typed("task get", task_id)
    typed("task result", paid)
    typed("task list", "billing")
    typed("task cancel", waiting)
    typed("status")
    typed("dlq list", "billing")
    typed("dlq show", dead)
    typed("dlq groups", "billing")
    typed("dlq redrive", "billing", dead, "--payload-file", "-", "--yes", "--reason", "mended", given=CARD.encode())
    typed("dlq redrive", "billing", "--all", "--dry-run")
    typed("dlq purge", "billing", other, "--yes", "--reason", "too old")
    sweep()
    rdq("dlq", "redrive", "billing", "--all", "--yes", "--detach", "--reason", "mended", "--json")
    typed("job list")
    (job, *_) = rdq("job", "list", "--json").document["items"]
    for verb in ("job get", "job cancel", "job watch", "job resume"):
        typed(verb, job["id"] if "id" in job else job["job_id"])
    _about_queues(typed, tmp_path / "queues.yaml")
    typed("gc", "--dry-run")
    typed("audit list")
    return said


def _about_queues(typed: Any, file: Path) -> None:
    for verb in ("get", "ladder", "stats"):
        typed(f"queue {verb}", "billing")
    for verb in ("check", "diff", "apply"):
        typed(f"queue {verb}", str(file))
    typed("queue list")
    typed("queue set", "billing", "retry.max_attempts=2", "--reason", "again")
    typed("queue pause", "billing", "--reason", "the bank is down")
    typed("queue resume", "billing")
    typed("queue delete", "email", "--yes")


def test_no_command_shows_what_is_private_unless_it_is_asked_to(
    typed: dict[str, list[Ended]], caplog: pytest.LogCaptureFixture
) -> None:
    assert set(typed) == set(leaves()) - ELSEWHERE
    assert {command for command, said in typed.items() if _shows(said, CARD)} == {"task result"}
    assert {command for command, said in typed.items() if _shows(said, CUSTOMER)} <= READS
    assert not any(CUSTOMER in each.err for said in typed.values() for each in said)


def test_whoever_asks_for_the_payload_gets_it(rdq: Shell) -> None:
    """Else the test above would look for something that nobody can find."""
    answer = rdq("submit", "-q", "billing", "-H", "pays", "--payload", CARD, "--json").document
    task_id = answer["submitted"][0]["id"]
    assert CARD not in rdq("task", "get", task_id).out
    assert CARD in rdq("task", "get", task_id, "--show-payload").out


def test_no_log_has_it_at_any_level(rdq: Shell, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="rdq"):
        for ref in ("pays", "fails"):
            rdq("submit", "-q", "billing", "-H", ref, "--payload", CARD, "--header", f"customer={CUSTOMER}")
        sweep()
        rdq("queue", "pause", "billing", "--debug")
    logged = [record for record in caplog.records if record.name.startswith("rdq")]
    assert logged
    assert not any(secret in str(vars(record)) for record in logged for secret in (CARD, CUSTOMER))


def _shows(said: Sequence[Ended], secret: str) -> bool:
    return any(secret in each.out + each.err for each in said)
