"""The functions' zips: small enough, the same each time, and whole: a bare interpreter imports
every handler.
"""

import ast
import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.package import LOCK, MOST_BYTES, PLATFORMS, ROOT, build, main
from tests.support.stores import TABLES

pytestmark = pytest.mark.slow

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OWN_ARCH = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}[
    platform.machine().lower()
]
ENVIRONMENT = {
    **TABLES.as_env(),
    "AWS_REGION": "eu-central-1",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "RDQ_SWEEPER_FUNCTION": "rdq-sweeper",
}

IMPORT = """
import importlib, json, sys
sys.path[:] = [place for place in sys.path if "site-packages" not in place]
sys.path.insert(0, sys.argv[1])
found = {}
for handler in sys.argv[2:]:
    module, _, name = handler.rpartition(".")
    found[handler] = callable(getattr(importlib.import_module(module), name))
print(json.dumps([found, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def handlers() -> list[str]:
    """Every handler that a function's docstring promises."""
    found = []
    for file in sorted((ROOT / "functions").glob("*.py")):
        functions = [
            each.name
            for each in ast.parse(file.read_text()).body
            if isinstance(each, ast.FunctionDef)
        ]
        found += [f"functions.{file.stem}.{name}" for name in functions if not name.startswith("_")]
    return found


def names_in(package: Path) -> set[str]:
    with zipfile.ZipFile(package) as opened:
        return {name.partition("/")[0] for name in opened.namelist()}


def test_every_handler_is_imported_from_its_zip_by_a_bare_interpreter(tmp_path: Path) -> None:
    package = build(OWN_ARCH, tmp_path, boto3="pinned", python=HERE)
    code = tmp_path / "task"
    with zipfile.ZipFile(package) as opened:
        opened.extractall(code)
    found, _ = imported(code, handlers(), tmp_path)
    assert found == dict.fromkeys(handlers(), True)
    assert {
        "functions.sweeper.handler",
        "functions.kick.clean_up",
        "functions.intake.handler",
    } <= set(found)
    # Only operator requests are validated by pydantic, whose import takes longer than all of ours.
    in_a_hurry = [each for each in handlers() if not each.startswith("functions.ops.")]
    _, modules = imported(code, in_a_hurry, tmp_path)
    assert not {"pydantic", "moto", "typer", "ulid"} & modules


def imported(code: Path, names: list[str], cwd: Path) -> tuple[dict[str, bool], set[str]]:
    """Which of the handlers can be called after their import in an interpreter of their own, and
    all its modules.
    """
    command = [sys.executable, "-I", "-S", "-c", IMPORT, str(code), *names]
    answer = subprocess.run(
        command,
        env={**ENVIRONMENT, "PATH": os.defpath},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    found, modules = json.loads(answer.stdout.splitlines()[-1])
    return found, set(modules)


@pytest.mark.parametrize("arch", PLATFORMS)
def test_a_zip_is_small_also_with_boto3_pinned_in(arch: str, tmp_path: Path) -> None:
    package = build(arch, tmp_path, boto3="pinned")
    assert package.stat().st_size < MOST_BYTES
    assert {"boto3", "botocore", "urllib3"} <= names_in(package)


@pytest.mark.parametrize("arch", PLATFORMS)
def test_a_zip_is_small_and_leaves_boto3_to_the_runtime(arch: str, tmp_path: Path) -> None:
    package = build(arch, tmp_path)
    assert package.stat().st_size < MOST_BYTES
    names = names_in(package)
    assert {"rdq_core", "functions", "aws_lambda_powertools", "pydantic_core"} <= names
    assert not {"boto3", "botocore", "urllib3", "moto", "typer"} & names


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = (build("arm64", tmp_path / name) for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_the_lock_file_has_the_versions_that_rdq_is_tested_with() -> None:
    def versions(lock: Path) -> set[str]:
        return {
            line.split()[0]
            for line in lock.read_text().splitlines()
            if "==" in line and line[0].isalpha()
        }

    assert versions(LOCK) <= versions(ROOT / "requirements-dev.lock")


def test_the_command_says_what_it_has_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--arch", "x86_64", "--into", str(tmp_path)]) == 0
    assert "rdq-functions-x86_64.zip" in capsys.readouterr().out
