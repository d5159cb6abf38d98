"""docs/testing.md and samples/tested as projects: in processes of their own, with nothing of ours
around them.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rdq_core.testing.contract import TaskStoreContract

ROOT = Path(__file__).parents[2]
FILES = re.findall(
    r"^```python\n# (\S+)\n(.*?)^```",
    (ROOT / "docs" / "testing.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
CONTRACT = "test_their_store.py"


def run(folder: Path, *command: str, ends: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == ends, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What the document shows, file by file."""
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_block_of_the_document_is_a_file() -> None:
    assert (ROOT / "docs" / "testing.md").read_text().count("```python") == len(FILES) == 8


def test_the_documents_tests_pass(project: Path) -> None:
    assert "6 passed" in run(project, "-m", "pytest", "-q", "-W", "error", f"--ignore={CONTRACT}")


def test_somebody_elses_store_is_held_against_the_whole_contract(project: Path) -> None:
    told = run(project, "-m", "pytest", "-v", "-W", "error", CONTRACT)
    passed = set(re.findall(r"::TestTheirStore::(test_\w+)\S* PASSED", told))
    assert passed == {name for name in dir(TaskStoreContract) if name.startswith("test_")}


def test_a_store_that_breaks_a_promise_is_told_which_and_shown_the_values(project: Path) -> None:
    test = project / CONTRACT
    test.write_text(
        test.read_text().replace("    return", "    store.heartbeat = lambda *_: None\n    return")
    )
    told = run(project, "-m", "pytest", "-q", "-k", "holds_the_claim_for_longer", CONTRACT, ends=1)
    assert re.search(r"E +assert datetime.datetime\(2026, 7, 20, 12, 1,", told)


def test_the_documents_script_runs_without_pytest(project: Path) -> None:
    run(project, "plain.py")


def test_the_samples_tests_pass_by_themselves_without_moto(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "samples" / "tested", tmp_path / "tested")
    (tmp_path / "tested" / "moto.py").write_text("raise ImportError('not installed')")
    assert "7 passed" in run(tmp_path / "tested", "-m", "pytest", "-q", "-W", "error")
