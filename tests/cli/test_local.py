"""`rdq local`: a local engine, and the variables that other terminals need to use it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from rdq_core.cli.demo import exports
from tests.cli.conftest import Shell
from tests.support.processes import HANGS

RDQ: Final = str(Path(sys.executable).with_name("rdq"))
VARIABLES: Final = {
    "AWS_ENDPOINT_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_DEFAULT_REGION",
    "RDQ_TASKS_TABLE",
    "RDQ_DLQ_TABLE",
    "RDQ_CONTROL_TABLE",
    "RDQ_AUDIT_TABLE",
}


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A running engine and the variables it prints."""
    with subprocess.Popen(
        [RDQ, "local", "--port", "0"],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().removeprefix("export ") for _ in VARIABLES]
        try:
            yield process, dict(line.strip().split("=", 1) for line in lines)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_local_engine_has_its_tables_and_ends_quietly(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path) as (process, environment):
        assert environment.keys() == VARIABLES
        clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        asked = [RDQ, "queue", "list", "--json"]
        assert (
            subprocess.run(
                asked, env={**clean, **environment}, capture_output=True, check=False
            ).returncode
            == 0
        )
        process.send_signal(number)
        out, err = process.communicate(timeout=HANGS)
    assert (process.returncode, out, err) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_named(shell: Shell, tmp_path: Path) -> None:
    with serving(tmp_path) as (_, environment):
        port = environment["AWS_ENDPOINT_URL"].rpartition(":")[2]
        answer = shell("local", "--port", port, "--json")
    assert (answer.code, answer.out) == (2, "")
    assert port in answer.error["message"]


@pytest.mark.parametrize("command", ["local", "demo"])
def test_without_the_extra_it_is_one_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.delitem(sys.modules, "rdq_core.testing.moto", raising=False)
    monkeypatch.setitem(sys.modules, "moto", None)
    answer = shell(command, "--json")
    assert (answer.code, answer.out) == (5, "")
    assert "which is not installed" in answer.error["message"]
    assert "rdq-core[cli,testing]" in answer.error["hint"]


def test_what_the_demo_leaves_for_other_terminals_finds_this_rdq(tmp_path: Path) -> None:
    (tmp_path / "env").write_text(
        exports({"A": "two words"}, commands=Path(RDQ).parent), encoding="utf-8"
    )
    script = '. ./env; printf "%s\\n" "$A"; command -v rdq'
    told = subprocess.run(
        ["/bin/sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert told.splitlines() == ["two words", RDQ]
