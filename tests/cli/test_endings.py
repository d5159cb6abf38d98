"""Commands that fail: exit code, one line on standard error, nothing on standard output."""

import importlib.resources
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest

from rdq_core import Rdq
from rdq_core.cli import dlq as dlq_commands
from rdq_core.cli import main
from rdq_core.runtime import wiring
from rdq_core.stores.dynamodb.schema import Tables
from rdq_core.testing.faults import FaultScript
from rdq_core.testing.moto import AtomicMotoServer
from tests.cli.conftest import QUEUES, Shell
from tests.support.engines import REGION, Engine
from tests.support.processes import HANGS

RDQ: Final = str(Path(sys.executable).with_name("rdq"))
LIST: Final = ("queue", "list", "--json")


def raising(error: BaseException) -> Any:
    def act(*_arguments: object, **_options: object) -> None:
        raise error

    return act


# -- AWS -------------------------------------------------------------------------------------------


def test_without_table_names_the_missing_variables_are_named(shell: Shell) -> None:
    answer = shell(*LIST)
    assert (answer.code, answer.out, answer.error["code"]) == (5, "", "task_unavailable")
    assert "RDQ_DLQ_TABLE" in answer.error["message"]


def test_without_a_region_it_says_so(
    shell: Shell, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    answer = shell(*LIST)
    assert answer.code == 5
    assert "region" in answer.error["message"]


@pytest.mark.parametrize(
    ("name", "wrong"), [("AWS_PROFILE", "no-such-profile"), ("AWS_ENDPOINT_URL", "no-url")]
)
def test_an_aws_setting_that_cannot_be_used_is_told(
    shell: Shell, tables: Tables, monkeypatch: pytest.MonkeyPatch, name: str, wrong: str
) -> None:
    monkeypatch.setenv(name, wrong)
    answer = shell(*LIST)
    assert (answer.code, answer.error["code"]) == (5, "task_unavailable")
    assert wrong in answer.error["message"]
    assert name in answer.error["hint"]


def test_a_missing_table_is_named(
    shell: Shell, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDQ_CONTROL_TABLE", "not-there")
    answer = shell(*LIST)
    assert answer.code == 5
    assert "not-there" in answer.error["message"]


def test_without_credentials_it_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for command in (LIST, ("init", "--json")):
        answer = shell(*command)
        assert answer.code == 5
        assert "credentials" in answer.error["message"]


def test_an_endpoint_that_does_not_answer_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for command in (LIST, ("init", "--json")):
        answer = shell(*command)
        assert answer.code == 5
        assert "AWS_ENDPOINT_URL" in answer.error["hint"]
        assert "http://127.0.0.1:9" in answer.error["message"]


def test_a_local_engine_that_is_down_is_told_at_the_first_refusal(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    message = shell(*LIST).error["message"]
    assert "connection refused at http://127.0.0.1:9" in message
    assert "times" not in message


def test_a_table_name_that_is_none_is_told_apart_from_one_that_is_missing(
    shell: Shell, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDQ_DLQ_TABLE", "no spaces")
    answer = shell(*LIST)
    assert (answer.code, answer.error["message"]) == (5, "not a table's name in RDQ_DLQ_TABLE")


def test_a_program_finds_the_tables_of_a_local_engine_as_the_command_line_does(
    shell: Shell, moto: Engine, local: AtomicMotoServer
) -> None:
    shell("init")
    shell("queue", "apply", "-", given=QUEUES.encode())
    receipt = Rdq.from_env().submit("billing", "charge", {"amount": 5})
    assert shell("task", "get", receipt.id, "--json").document["status"] == "PENDING"


def test_a_missing_permission_is_named(rdq: Shell) -> None:
    with FaultScript(wiring.dynamodb_client()) as script:
        script.reject("AccessDeniedException", "Query")
        answer = rdq(*LIST)
    assert answer.code == 5
    assert "dynamodb:Query" in answer.error["message"] + str(answer.error["hint"])


# -- ourselves -------------------------------------------------------------------------------------


def test_a_bug_is_one_line_and_says_how_to_report_it(
    rdq: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlq_commands, "OperatorClient", raising(ZeroDivisionError("private")))
    answer = rdq("dlq", "groups", "--json")
    assert (answer.code, answer.out) == (1, "")
    assert "ZeroDivisionError" in answer.error["message"]
    assert "private" not in answer.err
    assert "--debug" in answer.error["hint"]


def test_debug_shows_the_traceback(rdq: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq_commands, "OperatorClient", raising(ZeroDivisionError("seen")))
    answer = rdq("dlq", "groups", "--debug")
    assert answer.code == 1
    assert "Traceback" in answer.err
    assert "ZeroDivisionError: seen" in answer.err


def test_debug_may_stand_before_the_command(rdq: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq_commands, "OperatorClient", raising(ZeroDivisionError("seen")))
    assert "ZeroDivisionError: seen" in rdq("--debug", "dlq", "groups").err


def test_an_interrupt_ends_quietly(rdq: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq_commands, "OperatorClient", raising(KeyboardInterrupt()))
    answer = rdq("dlq", "groups")
    assert (answer.code, answer.out, answer.err.strip()) == (130, "", "")


def test_an_interrupt_while_it_loads_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loading:
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "rdq_core.cli.app", Loading())
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["dlq", "bogus"], ["dlq", "list"], ["queue", "list", "-o", "xml"]]
)
def test_a_command_line_that_makes_no_sense_is_wrong_use(
    shell: Shell, arguments: list[str]
) -> None:
    answer = shell(*arguments, "--json")
    assert (answer.code, answer.out, answer.error["code"]) == (2, "", "usage")
    answer = shell(*arguments)
    assert answer.err.startswith("rdq: ")
    assert "--help" in answer.err


def test_help_is_no_error(shell: Shell) -> None:
    for arguments in (["--help"], ["dlq", "redrive", "--help"]):
        answer = shell(*arguments)
        assert answer.code == 0
        assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.parametrize("group", [[], ["queue"], ["task"], ["dlq"], ["audit"]])
def test_no_command_is_cut_short_where_commands_are_listed(shell: Shell, group: list[str]) -> None:
    listed = shell(*group, "--help").out.partition("Commands:")[2].partition("Examples:")[0]
    assert listed
    assert "..." not in listed
    assert max(map(len, shell(*group, "--help").out.splitlines())) <= 80


def test_the_version_is_told(shell: Shell) -> None:
    answer = shell("--version")
    assert (answer.code, answer.out) == (0, f"rdq {version('rdq-core')}\n")


# -- init ------------------------------------------------------------------------------------------


@pytest.fixture
def local(moto: Engine, monkeypatch: pytest.MonkeyPatch) -> Any:
    with AtomicMotoServer() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint_url)
        yield server


def test_init_makes_a_local_engine_ready_under_default_names(
    shell: Shell, local: AtomicMotoServer
) -> None:
    first = shell("init", "--json").document
    assert first["tables"]["RDQ_TASKS_TABLE"] == "rdq-tasks"
    assert shell("init").out.count("export RDQ_") == 4
    assert shell("queue", "apply", "-", given=QUEUES.encode()).code == 0
    assert len(shell("queue", "list", "--json").document["items"]) == 2


def test_init_keeps_its_hands_off_aws(
    shell: Shell, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDQ_TASKS_TABLE", "new-tasks")
    refused = shell("init", "--json")
    assert (refused.code, refused.error["code"]) == (2, "usage")
    assert "--create-in-aws" in refused.error["hint"]
    assert "rdq local" in refused.error["hint"]
    assert shell("init", "--create-in-aws", "--json").code == 0


def test_init_makes_the_key_of_page_cursors_for_those_who_may_only_read(
    shell: Shell, tables: Tables, moto: Engine
) -> None:
    assert shell("init", "--create-in-aws", "--json").code == 0
    key = {"pk": {"S": "secret#cursor"}, "sk": {"S": "key"}}
    made = moto.dynamodb.get_item(TableName=tables.control, Key=key)["Item"]
    assert len(made["secret"]["B"]) >= 22
    assert shell("init", "--create-in-aws", "--json").code == 0
    assert moto.dynamodb.get_item(TableName=tables.control, Key=key)["Item"] == made


# -- real processes --------------------------------------------------------------------------------


def spawned(
    arguments: Sequence[str], server: AtomicMotoServer, **options: Any
) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL": server.endpoint_url,
        "AWS_DEFAULT_REGION": REGION,
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.Popen(
        arguments,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        **options,
    )


def test_a_closed_pipe_ends_quietly(shell: Shell, local: AtomicMotoServer) -> None:
    shell("init")
    queues = "".join(f"  q{number}: {{}}\n" for number in range(3))
    shell("queue", "apply", "-", given=f"config_version: 1\nqueues:\n{queues}".encode())
    process = spawned([RDQ, "queue", "list"], local)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(HANGS) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_without_the_extra_it_says_what_to_install(local: AtomicMotoServer) -> None:
    code = "import sys; sys.modules['typer'] = None; from rdq_core.cli import main; main()"
    process = spawned([sys.executable, "-c", code], local)
    out, err = process.communicate(timeout=HANGS)
    assert (process.returncode, out) == (2, b"")
    assert err.decode().splitlines() == ["the rdq command needs typer: pip install 'rdq-core[cli]'"]


def test_the_demo_runs_from_a_wheel() -> None:
    """All that it reads is in the package, where the wheel has everything."""
    files = {file.name for file in importlib.resources.files("rdq_core.cli.demo").iterdir()}
    assert files >= {"handlers.py", "queues.yaml", "receiver.yaml", "deliveries.jsonl"}


def test_a_file_of_deliveries_that_is_missing_is_named(shell: Shell) -> None:
    answer = shell("demo", "--json", "--deliveries", "nowhere.jsonl")
    assert (answer.code, answer.out) == (2, "")
    assert "nowhere.jsonl" in answer.error["message"]
