import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


AS_FILES = "testing.md"
"""Its blocks are a project's files, which another test runs."""


def blocks(language: str) -> list[tuple[str, str]]:
    """Each code block of a language, with a name for it."""
    found = []
    for document in DOCUMENTS:
        texts = re.findall(
            rf"^```{language}\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL
        )
        found += [(f"{document.name}-{number}", text) for number, text in enumerate(texts, start=1)]
    return found


AS_THEY_STAND = [block for block in blocks("python") if not block[0].startswith(AS_FILES)]


@pytest.mark.parametrize(("name", "text"), AS_THEY_STAND, ids=[name for name, _ in AS_THEY_STAND])
def test_every_python_block_runs_as_it_stands(name: str, text: str) -> None:
    exec(compile(text, name, "exec"), {"__name__": "__main__"})


def test_the_quickstart_has_no_more_than_twenty_lines_of_code() -> None:
    text = next(text for name, text in blocks("python") if name.startswith("README"))
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 20


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for _, text in blocks("console")
        for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE)
    }
    assert named <= targets


def test_every_link_to_a_file_leads_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_what_make_prints_fits_80_columns() -> None:
    lines = re.findall(r"^([\w-]+):.*## (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert lines
    assert all(len(f"  make {target:<15} {told}") <= 80 for target, told in lines)
