"""Names are made of words that the glossary explains, and one name stands for one thing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

import rdq_core
from tests.architecture.source import ROOT, Source, sources
from tests.architecture.vocabulary import (
    ORDINARY,
    PRIVATE,
    PRIVATE_PHRASES,
    SEVERAL_CLASSES,
    SEVERAL_MODULES,
    stem,
    words_of,
)

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
KNOWN = {stem(word) for word in ORDINARY} | {
    stem(word) for row in GLOSSARY.splitlines() for word in words_of(row.partition(" | ")[0])
}


def product() -> list[Source]:
    return [source for source in sources() if source.is_in("rdq_core", "functions")]


def unexplained(name: str) -> list[str]:
    return [word for word in words_of(name) if stem(word) not in KNOWN]


def public_classes(source: Source) -> list[str]:
    return [
        node.name
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def defined_names(source: Source) -> Iterator[tuple[int, str]]:
    """Each name that a module defines: itself, classes, functions, parameters, variables."""
    yield 1, source.module.rpartition(".")[2]
    for node in ast.walk(source.tree):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def test_every_public_name_is_in_the_glossary() -> None:
    explained = set(re.findall(r"`(\w+)`", GLOSSARY))
    assert set(rdq_core.__all__) <= explained


def test_every_word_of_a_module_name_is_explained() -> None:
    assert {
        source.module: words
        for source in product()
        if (words := unexplained(source.module.rpartition(".")[2]))
    } == {}, "add a line to docs/glossary.md, or an ordinary word to vocabulary.py"


def test_every_word_of_a_public_class_name_is_explained() -> None:
    assert {
        f"{source.module}.{name}": words
        for source in product()
        for name in public_classes(source)
        if (words := unexplained(name))
    } == {}, "add a line to docs/glossary.md, or an ordinary word to vocabulary.py"


def package_of(source: Source) -> str:
    return ".".join(source.module.split(".")[:2])


PACKAGES = sorted({package_of(source) for source in product()})


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_has_a_private_word(package: str) -> None:
    found = {
        f"{source.module}:{line} {name}"
        for source in product()
        if package_of(source) == package
        for line, name in defined_names(source)
        if PRIVATE & set(words_of(name))
        or any(phrase in "_".join(words_of(name)) for phrase in PRIVATE_PHRASES)
    }
    assert sorted(found) == []


def test_a_class_name_stands_for_one_class() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for source in product():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(source.module)
    assert {
        name: modules
        for name, modules in homes.items()
        if len(modules) > 1 and name not in SEVERAL_CLASSES
    } == {}, "rename one, or give a reason in vocabulary.py"


def test_a_module_name_stands_for_one_module() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for source in product():
        if source.path.stem != "__init__":
            homes[source.path.stem].append(source.module)
    assert {
        name: modules
        for name, modules in homes.items()
        if len(modules) > 1 and name not in SEVERAL_MODULES
    } == {}, "rename one, or give a reason in vocabulary.py"


def test_every_ordinary_word_is_used() -> None:
    used = {
        stem(word)
        for source in product()
        for name in (source.module.rpartition(".")[2], *public_classes(source))
        for word in words_of(name)
    }
    assert sorted(word for word in ORDINARY if stem(word) not in used) == []
