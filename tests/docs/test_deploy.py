"""The deploy guide's commands run in its order on a local engine, and its sums are right."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rdq_core.domain.units import parse_duration
from tests.e2e.stack import package
from tests.infra.templates import INFRA_BIN, sam
from tests.support.ministack import ROOT, Ministack

GUIDE: Final = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"([^\n]*)\n\n```console\n(.*?)```", GUIDE, re.DOTALL)
HERE_AS_WELL: Final = [
    line
    for before, block in BLOCKS
    if "*On AWS only:*" not in before
    for line in block.splitlines()
]
ON_AWS_ONLY: Final = [
    line for before, block in BLOCKS if "*On AWS only:*" in before for line in block.splitlines()
]
QUEUES: Final = """
config_version: 1
queues:
  payments.charge:
    retry: {max_attempts: 8}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A folder like the repository's root, with a package, and an environment that leads to a local
    engine.
    """
    (tmp_path / "infra").symlink_to(ROOT / "infra")
    (tmp_path / "dist").mkdir()
    package(tmp_path).rename(tmp_path / "dist" / "rdq-functions-arm64.zip")
    (tmp_path / "queues.yaml").write_text(QUEUES)
    with Ministack() as server:
        tables = {
            f"RDQ_{name.upper()}_TABLE": f"rdq-prod-{name}"
            for name in ("tasks", "dlq", "control", "audit")
        }
        path = os.pathsep.join([str(INFRA_BIN), str(ROOT / ".venv" / "bin"), os.environ["PATH"]])
        environ = {
            **os.environ,
            **tables,
            "PATH": path,
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "NO_COLOR": "1",
        }
        yield {"cwd": tmp_path, "env": environ}


@pytest.mark.ministack
def test_each_command_does_what_it_should(shell: dict[str, Any]) -> None:
    for line in HERE_AS_WELL:
        if line != "make package":  # it is built already, for this machine
            done = subprocess.run(
                line, shell=True, capture_output=True, text=True, check=False, **shell
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    kept = subprocess.run(
        "aws dynamodb list-tables", shell=True, capture_output=True, text=True, check=True, **shell
    )
    assert kept.stdout.count("rdq-test-") == 4


@pytest.mark.parametrize("line", ON_AWS_ONLY)
def test_a_command_that_needs_an_account_is_understood_by_its_tool(line: str) -> None:
    tool, *arguments = shlex.split(line)
    assert tool == "aws"
    environ = {**os.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"}
    done = subprocess.run(
        [INFRA_BIN / tool, *arguments], capture_output=True, text=True, check=False, env=environ
    )
    # Understood, and sent to where nobody listens.
    assert "Could not connect to the endpoint URL" in done.stderr


def test_every_parameter_is_one_of_the_template() -> None:
    used = {
        pair.partition("=")[0]
        for line in HERE_AS_WELL
        for pair in line.partition("--parameter-overrides ")[2].split()
    }
    assert used <= set(sam()["Parameters"])
    assert {"CodeBucket", "CodeKey"} <= used


def test_the_queues_in_a_template_are_a_valid_file() -> None:
    from rdq_core.config.document import document_of

    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    config = yaml.safe_load(block)["Resources"]["Queues"]["Properties"]["Config"]
    assert set(document_of(config).queues) == {"payments.charge"}


def test_the_outputs_that_are_named_are_there() -> None:
    assert set(re.findall(r"`(\w+PolicyArn|OpsFunctionArn)`", GUIDE)) <= set(sam()["Outputs"])


def rows(heading: str) -> list[list[str]]:
    """The cells of a table, by how its first line begins."""
    lines = GUIDE[GUIDE.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


def test_a_million_tasks_cost_what_the_formula_says() -> None:
    for row in rows("| attempts a task |"):
        attempts, deaths, seconds, concurrency, *told = map(float, row)
        dynamodb = attempts * 7 * 0.625 + deaths * 3 * 0.625
        sweeper = attempts * seconds / concurrency * 0.5 * 13.3334
        assert told == pytest.approx([dynamodb, sweeper, dynamodb + sweeper], abs=0.011)


def test_an_idle_stack_costs_the_sum_of_its_parts() -> None:
    *parts, total = rows("| | how much |")
    assert sum(float(part[2]) for part in parts) == pytest.approx(float(total[2]))
    alarms = [
        each for each in sam()["Resources"].values() if each["Type"] == "AWS::CloudWatch::Alarm"
    ]
    assert f"{len(alarms)} x $0.10" in {part[1] for part in parts}
    a_month = parse_duration("30d").total_seconds() / 60
    assert f"{a_month:,.0f} x 2.5 s x 0.5 GB" in {part[1] for part in parts}
