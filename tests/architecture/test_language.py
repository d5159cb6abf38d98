"""Docstrings, comments, messages and documents are written in plain English."""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.architecture.vocabulary import TRANSLATED

PHRASES = {re.compile(phrase, re.IGNORECASE): instead for phrase, instead in TRANSLATED.items()}
ANY_PHRASE = re.compile("|".join(TRANSLATED), re.IGNORECASE)
JOINTS = re.compile(r"\s+(?:#+\s*)?")
TEXTS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
SUFFIXES = {".py", ".md", ".yaml", ".toml"}
AREAS = [
    *sorted(
        f"rdq_core/{path.name}"
        for path in (ROOT / "rdq_core").iterdir()
        if path.is_dir() and path.name != "__pycache__"
    ),
    "rdq_core/__init__.py",
    "rdq_core/errors.py",
    "functions",
    "infra",
    "samples",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
    "pyproject.toml",
]


def files_of(area: str) -> list[Path]:
    path = ROOT / area
    if path.is_file():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.suffix in SUFFIXES and not {".venv", "cdk.out"} & set(file.parts)
    )


@cache
def texts_of(path: Path) -> list[tuple[int, str]]:
    """The texts of a file that has such a phrase, with their lines: comments and strings of Python,
    paragraphs of anything else.
    """
    text = path.read_text(encoding="utf-8")
    if not ANY_PHRASE.search(JOINTS.sub(" ", text)):
        return []  # most files: tokenizing them all takes seconds
    if path.suffix == ".py":
        return list(_python_texts(text))
    paragraphs, line = [], 1
    for paragraph in text.split("\n\n"):
        paragraphs.append((line, _joined(paragraph)))
        line += paragraph.count("\n") + 2
    return paragraphs


def _python_texts(text: str) -> Iterator[tuple[int, str]]:
    comment: list[str] = []
    line = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line = line if comment else token.start[0]
            comment.append(token.string.lstrip("# "))
        elif token.type != tokenize.NL and comment:
            yield line, _joined(" ".join(comment))
            comment = []
        if token.type in TEXTS:
            yield token.start[0], _joined(token.string)


def _joined(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("area", AREAS)
def test_no_text_reads_as_translated(area: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r}, better: {instead}"
        for path in files_of(area)
        for line, text in texts_of(path)
        if ANY_PHRASE.search(text)
        for phrase, instead in PHRASES.items()
        for match in phrase.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize("phrase", ["Nobody knows.", "an operator who is\n    told of it"])
def test_a_planted_phrase_is_found(tmp_path: Path, phrase: str) -> None:
    module = tmp_path / "planted.py"
    module.write_text(f'"""{phrase}"""\n')
    page = tmp_path / "planted.md"
    page.write_text(f"# Title\n\n{phrase}\n")
    for path in (module, page):
        assert any(ANY_PHRASE.search(text) for _, text in texts_of(path))
