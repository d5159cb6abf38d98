"""What is wrong by its types fails mypy and pyright, and what is right passes both, in their strict
modes.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USAGE = Path(__file__).with_name("usage.py")

pytestmark = pytest.mark.slow


def wrong_lines() -> set[int]:
    return {
        number
        for number, line in enumerate(USAGE.read_text().splitlines(), start=1)
        if line.endswith("# error")
    }


def run(*command: str) -> str:
    # Pyright's wrapper would otherwise look for a newer one of itself on the network.
    environment = {
        "PATH": "",
        "PYRIGHT_PYTHON_GLOBAL_NODE": "0",
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_mypy_finds_what_is_wrong_and_nothing_else() -> None:
    output = run("mypy", "--strict", "--no-error-summary", "--hide-error-context", str(USAGE))
    errors = [line for line in output.splitlines() if ": error:" in line and USAGE.name in line]
    assert {int(re.split(r":(\d+):", line)[1]) for line in errors} == wrong_lines(), output


def test_pyright_finds_what_is_wrong_and_nothing_else() -> None:
    output = run("pyright", "--outputjson", "--pythonpath", sys.executable, str(USAGE))
    errors = json.loads(output)["generalDiagnostics"]
    found = {
        error["range"]["start"]["line"] + 1 for error in errors if error["severity"] == "error"
    }
    assert found == wrong_lines(), output
