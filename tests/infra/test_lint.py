"""The linter finds nothing, neither in the source nor in what CloudFormation makes of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.infra.synthesis import APP
from tests.infra.templates import INFRA_BIN, SAM, run_infra, translated
from tests.support.ministack import ROOT

_MOST_BYTES: Final = 51_200
"""What CloudFormation takes in the call itself, as `aws cloudformation deploy` sends it."""


def test_the_source_fits_into_one_call() -> None:
    assert SAM.stat().st_size <= _MOST_BYTES


@pytest.mark.slow
def test_the_construct_and_its_example_are_typed() -> None:
    config, tools = ROOT / "pyproject.toml", INFRA_BIN / "python"
    mypy = [
        "-m",
        "mypy",
        "--config-file",
        str(config),
        "--exclude",
        "^$",
        "--python-executable",
        str(tools),
    ]
    checked = [sys.executable, *mypy, "rdq_cdk", "app.py"]
    done = subprocess.run(checked, cwd=APP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_source_is_clean() -> None:
    assert run_infra("cfn-lint", str(SAM)) == ""


def test_the_translation_is_clean(tmp_path: Path) -> None:
    template = tmp_path / "translated.json"
    template.write_text(json.dumps(translated()))
    # E3002 and the like stay on: the source alone hides wrong runtimes and misspelt actions.
    assert run_infra("cfn-lint", str(template)) == ""
