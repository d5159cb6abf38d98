"""`rdq worker`: which handlers it takes, what it reports, how it stops."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from rdq_core.errors import InputInvalid
from rdq_core.runtime.loading import load_registry
from rdq_core.testing.moto import AtomicMotoServer
from tests.cli.conftest import Shell
from tests.support.engines import REGION, Engine
from tests.support.processes import HANGS

RDQ: Final = str(Path(sys.executable).with_name("rdq"))
MODULE: Final = """
from rdq_core import Registry

registry = Registry(queues=["billing"])

@registry.handler("charge")
def charge(payload: bytes) -> str:
    return "charged"
"""
QUEUES: Final = b"""
config_version: 1
queues:
  billing: {dispatch: {poll_interval: 100ms}}
  far: {dispatch: {host: sweeper}}
"""


@pytest.fixture
def local(
    moto: Engine, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[AtomicMotoServer]:
    with AtomicMotoServer() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint_url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        (tmp_path / "payments.py").write_text(MODULE, encoding="utf-8")
        assert shell("init").code == 0
        assert shell("queue", "apply", "-", given=QUEUES).code == 0
        yield server


def worker(folder: Path, *arguments: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    environment = {**os.environ, "AWS_DEFAULT_REGION": REGION}
    return subprocess.Popen(
        [RDQ, "worker", "payments", *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )


def test_on_a_terminal_a_worker_says_what_it_serves_and_how_to_stop_it(
    local: AtomicMotoServer, tmp_path: Path
) -> None:
    ours, its = os.openpty()
    with worker(tmp_path, "--drain", "--drain-horizon", "1s", stderr=its) as process:
        os.close(its)
        with os.fdopen(ours, encoding="utf-8", newline="") as terminal:
            assert terminal.readline().rstrip() == "serving billing; Ctrl-C stops"
            process.communicate(timeout=HANGS)
    assert process.returncode == 0


def test_a_draining_worker_runs_what_is_due_and_reports(
    shell: Shell, local: AtomicMotoServer, tmp_path: Path
) -> None:
    task_id = shell(
        "submit", "-q", "billing", "-H", "charge", "--payload", "secret", "--json"
    ).document["submitted"][0]["id"]
    out, err = worker(tmp_path, "--drain", "--drain-horizon", "1s", "--json").communicate(
        timeout=HANGS
    )
    events = [json.loads(line) for line in err.splitlines()]
    assert json.loads(out)["total"]["completed"] == 1
    assert [event["event"] for event in events if event.get("task_id") == task_id] == [
        "claimed",
        "succeeded",
    ]
    assert "secret" not in err
    assert shell("task", "get", task_id, "--json").document["status"] == "SUCCEEDED"


def test_sigterm_is_a_normal_end(local: AtomicMotoServer, shell: Shell, tmp_path: Path) -> None:
    shell("submit", "-q", "billing", "-H", "charge", "--payload", "x")
    with worker(tmp_path) as process:
        assert process.stderr is not None
        process.stderr.readline()  # an event: it is at work
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=HANGS)
    assert process.returncode == 0
    assert out.startswith("done: ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere.to.be_found"], "there is no module nowhere"),
        (["payments.py"], "a module's name is needed"),
        (["payments:nothing"], "has no Registry named nothing"),
        (["payments", "--drain", "--drain-horizon", "60"], "drain_horizon"),
        (["payments", "--grace", "25"], "grace"),
        (["payments", "-q", "far"], "served by the sweeper"),
    ],
)
def test_a_worker_that_cannot_work_refuses_to_start(
    shell: Shell,
    local: AtomicMotoServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    answer = shell("worker", *arguments, "--json")
    assert (answer.code, answer.out) == (2, "")
    assert problem in answer.error["message"]


def test_a_queue_that_is_not_configured_is_not_found(
    shell: Shell, local: AtomicMotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert shell("worker", "payments", "-q", "nope", "--json").code == 3


@pytest.mark.parametrize(
    ("source", "code", "expected"),
    [
        ("x = 1\ndef broken(:\n", 2, "line 2"),
        ("import os\nfrom os import nothing_like_that\n", 2, "nothing_like_that"),
        ("import os\nimport not_installed_here\n", 2, "line 2"),
        (
            "from rdq_core import Registry\nRegistry(queues='billing')\n",
            2,
            "queues: must be a list of names",
        ),
        ("from rdq_core import Rdq\nRdq.from_env()\n", 5, "no table name in RDQ_TASKS_TABLE"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_place(
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    code: int,
    expected: str,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"broken_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    answer = shell("worker", name, "--json")
    assert (answer.code, answer.out) == (code, "")
    assert expected in answer.error["message"]
    assert f"{name}.py, line " in answer.error["message"]
    assert answer.error["hint"] or code == 2


def test_the_only_registry_of_a_module_needs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "one_registry.py").write_text(MODULE.replace("registry", "mine"), encoding="utf-8")
    (tmp_path / "two_registries.py").write_text(
        "from rdq_core import Registry\na, b = Registry(), Registry()", encoding="utf-8"
    )
    (tmp_path / "broken_module.py").write_text("1 / 0", encoding="utf-8")
    assert "charge" in load_registry("one_registry").refs
    with pytest.raises(InputInvalid, match="several: a, b"):
        load_registry("two_registries")
    with pytest.raises(InputInvalid, match="raised ZeroDivisionError"):
        load_registry("broken_module")
