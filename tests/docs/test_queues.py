"""What docs/queues.md shows is what happens: its file is valid, and its commands run in their
order.
"""

import re
import shlex
from pathlib import Path

import pytest

from rdq_core.cli.app import run
from rdq_core.config.document import parse_document
from rdq_core.runtime import principal, wiring
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from tests.cli.conftest import KnowsAnn
from tests.support.engines import Engine

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "queues.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, int]]:
    """Each command line, and the exit code that the text says."""
    lines = [line for block in blocks("console") for line in block.splitlines() if line.strip()]
    return [
        (line, int(said[1]) if (said := re.search(r"exit code (\d)", line)) else 0)
        for line in lines
    ]


def test_every_file_is_valid() -> None:
    assert [len(parse_document(block).queues) for block in blocks("yaml")] == [2]


def test_every_command_runs_in_its_order(
    moto: Engine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client, names = moto.dynamodb, Tables("tasks", "dlq", "control", "audit")
    create_tables(client, names)
    for name, value in names.as_env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(wiring, "dynamodb_client", lambda: client)
    monkeypatch.setattr(principal, "_sts", KnowsAnn)
    monkeypatch.chdir(tmp_path)
    Path("queues.yaml").write_text(blocks("yaml")[0])

    for line, expected in commands():
        program, *arguments = shlex.split(line, comments=True)
        code = run(arguments)
        assert (program, code) == ("rdq", expected), f"{line}\n{capsys.readouterr().err}"
