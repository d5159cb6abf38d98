"""No command prints private data: payloads, header values, results, credentials."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from rdq_core.cli.app import app
from rdq_core.engine.sweep import SweepLimits
from rdq_core.runtime.log import LogSink
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.wiring import connect
from rdq_core.testing.moto import AtomicMotoServer
from tests.cli.conftest import QUEUES, Shell
from tests.cli.test_local import RDQ, serving
from tests.support import waiting
from tests.support.canary import (
    HEADER,
    MESSAGE,
    PAYLOAD,
    REFERENCE,
    RESULT,
    ROOT,
    Outlets,
    found_in,
)
from tests.support.engines import REGION, Engine
from tests.support.processes import HANGS

WHOLE: Final = {HEADER, MESSAGE, RESULT}
MAY_SHOW: Final[Mapping[str, set[str]]] = {
    "task get": WHOLE,
    "task result": {RESULT},
    "dlq show": WHOLE,
    "dlq list": {MESSAGE},
    "dlq groups": {MESSAGE},
}
"""What commands print on standard output besides names, numbers and times; no payload that wasn't
asked for.
"""
MODULE: Final = """
import logging
from tests.support.waiting import registry

logging.basicConfig(level=logging.DEBUG)
"""


def leaves(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command."""
    command = command or typer.main.get_command(app)
    if not hasattr(command, "commands"):
        yield " ".join(path)
        return
    for name, below in command.commands.items():
        yield from leaves(below, (*path, name))


class Typed:
    """A shell whose every answer is heard, as a table and as JSON: standard output under the
    command's name.
    """

    def __init__(self, rdq: Shell, outlets: Outlets) -> None:
        self._rdq = rdq
        self.outlets = outlets
        self.commands: set[str] = set()

    def __call__(self, command: str, *arguments: str, given: bytes = b"") -> Any:
        self.commands.add(command)
        for form in (("-o", "table", "--debug"), ("-o", "json", "--utc")):
            ended = self._rdq(*command.split(), *arguments, *form, given=given)
            self.outlets.hear(command, ended.out)
            self.outlets.hear("stderr", ended.err)
            document = ended.document if "json" in form and ended.out else None
        return document


def sweep() -> None:
    """Run what is due: `pays` returns, `fails` dies with private things in a variable and in what
    it says.
    """
    limits = SweepLimits(horizon=timedelta(0), linger=timedelta(0))
    build_sweeper(
        connect(events=LogSink()), waiting.registry, serves=["billing"], worker="test"
    ).sweep(limits)


@pytest.fixture
def typed(rdq: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Typed]:
    """Commands about tasks in every state, and what each has said."""
    with Outlets(capsys) as outlets:
        yield Typed(rdq, outlets)


def about_tasks(typed: Typed, rdq: Shell) -> None:
    task = json.dumps({"queue": "nowhere", "handler_ref": "pays", "payload_text": PAYLOAD})
    lines = f"{task}\n{PAYLOAD}\n".encode()
    typed("submit", "--tasks", "-", given=lines)
    typed("submit", "-q", "nowhere", "-H", "pays", "--payload", PAYLOAD)
    typed("submit", "-q", "billing", "-H", "pays", "--payload", PAYLOAD * 100)
    rdq("queue", "set", "billing", "retry.max_attempts=1", "--reason", "at once")
    paid, dead, other = (submitted(typed, ref) for ref in ("pays", "fails", "fails"))
    sweep()
    waiting = submitted(typed, "pays")
    for task_id in (paid, dead, waiting):
        typed("task get", task_id)
    typed("task result", paid)
    typed("task list", "billing")
    typed("task cancel", waiting, "--reason", "sent twice")
    typed("status")
    typed("dlq list", "billing")
    typed("dlq show", dead)
    typed("dlq groups", "billing")
    edited = ("--payload-file", "-", "--yes", "--reason", "mended")
    typed("dlq redrive", "billing", dead, *edited, given=PAYLOAD.encode())
    typed("dlq redrive", "billing", "--all", "--dry-run")
    typed("dlq purge", "billing", other, "--yes", "--reason", "too old")
    typed("task forget", "--target", REFERENCE, "--yes")


def about_jobs(typed: Typed, rdq: Shell) -> None:
    sweep()
    rdq("dlq", "redrive", "billing", "--all", "--yes", "--detach", "--reason", "mended", "--json")
    (job, *_) = typed("job list")["items"]
    for verb in ("job get", "job cancel", "job watch", "job resume"):
        typed(verb, job["job_id"])


def about_queues(typed: Typed, file: Path) -> None:
    file.write_text(QUEUES, encoding="utf-8")
    for verb in ("get", "ladder", "stats"):
        typed(f"queue {verb}", "billing")
    for verb in ("check", "diff", "apply"):
        typed(f"queue {verb}", str(file))
    typed("queue list")
    typed("queue set", "billing", "retry.max_attempts=2", "--reason", "again")
    typed("queue pause", "billing", "--reason", "the bank is down")
    typed("queue resume", "billing")
    typed("queue delete", "email", "--yes")
    typed("gc", "--dry-run")
    typed("audit list")


def a_submit(ref: str) -> list[str]:
    return ["-q", "billing", "-H", ref, "--payload", PAYLOAD, "--header", f"customer={HEADER}"]


def submitted(typed: Typed, ref: str) -> str:
    task_id: str = typed("submit", *a_submit(ref))["submitted"][0]["id"]
    return task_id


def test_no_command_shows_what_is_private_unless_it_is_asked_to(
    typed: Typed, rdq: Shell, tmp_path: Path
) -> None:
    about_tasks(typed, rdq)
    about_jobs(typed, rdq)
    about_queues(typed, tmp_path / "queues.yaml")
    assert typed.commands | set(PROCESSES) == set(leaves())
    leaks = typed.outlets.leaks()
    assert (
        leaks - {(command, secret) for command, secrets in MAY_SHOW.items() for secret in secrets}
        == set()
    )
    assert leaks >= {
        ("task get", RESULT),
        ("dlq show", HEADER),
        ("dlq list", MESSAGE),
        ("dlq groups", MESSAGE),
    }
    assert typed.outlets.heard("log")


def test_a_payload_is_shown_on_request(typed: Typed) -> None:
    """Otherwise the test above could not find anything."""
    task_id = submitted(typed, "pays")
    typed("task get", task_id)
    assert ("task get", PAYLOAD) not in typed.outlets.leaks()
    typed("task get", task_id, "--show-payload")
    assert ("task get", PAYLOAD) in typed.outlets.leaks()


# -- those that are processes of their own ---------------------------------------------------------


def ended(process: "subprocess.Popen[str]") -> str:
    """All that it has printed, once it has ended rightly."""
    out, err = process.communicate(timeout=HANGS)
    assert process.returncode == 0, err
    return out + err


def local(folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """A local engine, and tasks that are on it."""
    with serving(folder) as (process, environment):
        for name, value in {**environment, "NO_PROXY": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
        assert shell("queue", "apply", "-", given=QUEUES.encode()).code == 0
        assert shell("submit", *a_submit("pays")).code == 0
        process.send_signal(signal.SIGTERM)
        return ended(process)


def init(folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """Tables that are there already, with a task in them."""
    with AtomicMotoServer() as server:
        work_on(server, shell, monkeypatch)
        assert shell("submit", *a_submit("pays")).code == 0
        again = shell("init")
        assert again.code == 0
        return again.out + again.err


def worker(folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """A worker whose module wants everything logged at DEBUG: one task succeeds, one dies, one has
    no handler.
    """
    (folder / "waiting.py").write_text(MODULE, encoding="utf-8")
    with AtomicMotoServer() as server:
        work_on(server, shell, monkeypatch)
        for ref in ("pays", "fails", "nobody-knows"):
            shell("submit", *a_submit(ref))
        command = [RDQ, "worker", "waiting", "--drain", "--drain-horizon", "0s"]
        environment = {**os.environ, "AWS_DEFAULT_REGION": REGION, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            told = ended(process)
        assert {
            event for event in ("succeeded", "dead_lettered") if f'"event":"{event}"' in told
        } == {
            "succeeded",
            "dead_lettered",
        }
        return told


def demo(folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """The demo's webhooks, each with a card in it."""
    lines = (
        (ROOT / "rdq_core" / "cli" / "demo" / "deliveries.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    (folder / "deliveries.jsonl").write_text(
        "".join(f"{json.dumps({**json.loads(line), 'card': PAYLOAD})}\n" for line in lines),
        encoding="utf-8",
    )
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RDQ_"))
    }
    command = [RDQ, "demo", "--deliveries", str(folder / "deliveries.jsonl")]
    with subprocess.Popen(
        command, cwd=ROOT, env=clean, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        return ended(process)


def work_on(server: AtomicMotoServer, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint_url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert shell("init").code == 0
    assert shell("queue", "apply", "-", given=QUEUES.encode()).code == 0
    assert shell("queue", "set", "billing", "retry.max_attempts=1", "--reason", "at once").code == 0


PROCESSES: Final[dict[str, Callable[[Path, Shell, pytest.MonkeyPatch], str]]] = {
    "local": local,
    "init": init,
    "worker": worker,
    "demo": demo,
}


@pytest.mark.parametrize("command", PROCESSES)
def test_nor_does_one_that_is_a_process_of_its_own(
    moto: Engine, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    assert found_in(PROCESSES[command](tmp_path, shell, monkeypatch)) == set()
