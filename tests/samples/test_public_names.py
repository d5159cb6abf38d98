"""Samples use the public names of rdq only, and their READMEs fit a screen."""

import ast
from pathlib import Path

import pytest

import rdq_core

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
FILES = [*sorted(SAMPLES.rglob("*.py")), ROOT / "rdq_core" / "cli" / "demo" / "handlers.py"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_sample_uses_public_names_only(file: Path) -> None:
    imports = [
        node
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    modules = {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    names = {
        alias.name
        for node in imports
        for alias in node.names
        if getattr(node, "module", "") == "rdq_core"
    }
    assert {module for module in modules if module and module.startswith("rdq_core.")} <= {
        "rdq_core.testing"
    }
    assert names <= set(rdq_core.__all__)


@pytest.mark.parametrize(
    "readme", sorted(SAMPLES.rglob("README.md")), ids=lambda readme: readme.parent.name
)
def test_a_readme_has_at_most_forty_lines(readme: Path) -> None:
    assert len(readme.read_text().splitlines()) <= 40
