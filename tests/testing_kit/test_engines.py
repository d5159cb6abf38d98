"""Each test gets an engine of its own: what one stored, the next doesn't see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.engines import Engine
from tests.support.ministack import Ministack
from tests.testing_kit.tables import a_table, put


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_begins_with_an_empty_engine(engine: Engine, turn: str) -> None:
    assert engine.dynamodb.list_tables()["TableNames"] == []

    put(engine.dynamodb, a_table(engine.dynamodb), "left behind")


@pytest.mark.ministack
def test_a_child_process_reaches_the_same_tables(ministack: Engine) -> None:
    table = a_table(ministack.dynamodb)
    code = "import boto3; print(boto3.client('dynamodb').list_tables()['TableNames'])"

    child = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], **ministack.environment},
        capture_output=True,
        text=True,
        check=True,
    )

    assert child.stdout.strip() == repr([table])


def test_moto_says_that_no_other_process_can_reach_it(moto: Engine) -> None:
    with pytest.raises(RuntimeError, match="this process alone"):
        _ = moto.environment


@pytest.mark.ministack
def test_a_stopped_server_is_gone_with_its_folder() -> None:
    with Ministack() as server:
        pid = server.pid
        assert "Ready" in server.log()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(FileNotFoundError):
        server.log()


def test_a_missing_ministack_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.support.ministack.EXECUTABLE", tmp_path / "ministack")
    with pytest.raises(RuntimeError, match="make test"):
        Ministack()
