"""docs/architecture.md and docs/correctness.md name files, conditions and planted mistakes that
exist.
"""

import re
from pathlib import Path

import pytest

from rdq_core.stores.dynamodb.expressions import CLAUSES
from rdq_core.stores.dynamodb.schema import Attr, Tables, definitions
from tests.simulation.planted import MISTAKES

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"`([\w./-]+(?:\.py|\.yaml|\.json|/))(?: [^`]*)?`")


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def is_there(path: str) -> bool:
    return any((folder / path).exists() for folder in (ROOT, ROOT / "rdq_core"))


@pytest.mark.parametrize("page", ["architecture.md", "correctness.md"])
def test_every_file_that_is_named_exists(page: str) -> None:
    named = set(FILE.findall(text_of(page)))
    assert len(named) > 10
    assert sorted(path for path in named if not is_there(path)) == []


@pytest.mark.parametrize("page", ["architecture.md", "correctness.md"])
def test_every_condition_that_is_named_exists(page: str) -> None:
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", text_of(page)))
    assert named
    assert named - {"LEASE_EXPIRED"} <= set(CLAUSES)


def test_every_promise_of_the_table_names_its_test() -> None:
    table = text_of("architecture.md").partition("| promise | file | test |\n|---|---|---|\n")[2]
    rows = [line.strip("|").split("|") for line in table.partition("\n\n")[0].splitlines()]
    assert len(rows) >= 15
    for promise, _, test in rows:
        assert FILE.search(test), promise


def test_the_picture_has_each_tables_keys_and_indexes() -> None:
    page = text_of("architecture.md")
    for name, definition in definitions(Tables("tasks", "dlq", "control", "audit")).items():
        keys = ", ".join(key["AttributeName"] for key in definition["KeySchema"])
        assert re.search(rf"^{name} +{keys}\b", page, re.MULTILINE), name
        for index in definition.get("GlobalSecondaryIndexes", ()):
            sort = index["KeySchema"][1]["AttributeName"]
            start = rf"^  index {index['IndexName']}: {Attr.QUEUE_SHARD}"
            assert re.search(rf"{start}.*\b{sort}\b", page, re.MULTILINE)


def test_every_mistake_that_correctness_names_is_planted() -> None:
    table = text_of("correctness.md").partition("| promise |")[2].partition("\n\n")[0]
    named = set(re.findall(r'"([^"]+)"', table))
    assert len(named) > 20
    assert named <= set(MISTAKES)
