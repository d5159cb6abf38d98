"""`rdq gc`: its output for people and for programs."""

from typing import Any

import pytest

from rdq_core.stores.dynamodb.schema import Tables
from tests.cli.conftest import DeadLetter, Shell
from tests.support.engines import Engine

NOTHING = dict.fromkeys(("attempts", "entries", "bodies", "results", "objects"), 0)


@pytest.fixture
def orphan(moto: Engine, tables: Tables, dead_letter: DeadLetter) -> str:
    """An attempt's record whose number its task's history gave to another."""
    task_id = dead_letter()
    records = moto.dynamodb.scan(TableName=tables.dlq)["Items"]
    record: Any = next(item for item in records if item["kind"]["S"].startswith("A#1#"))
    moto.dynamodb.put_item(
        TableName=tables.dlq, Item={**record, "kind": {"S": "A#1#0123456789abcdef"}}
    )
    return task_id


def test_programs_get_counts_by_kind(rdq: Shell, orphan: str) -> None:
    counts = {
        "examined": {**NOTHING, "attempts": 2, "entries": 1},
        "found": {**NOTHING, "attempts": 1},
    }

    assert rdq("gc", "--dry-run", "--json").document == {
        **counts,
        "removed": NOTHING,
        "dry_run": True,
    }
    assert rdq("gc", "--json").document == {
        **counts,
        "removed": {**NOTHING, "attempts": 1},
        "dry_run": False,
    }
    assert rdq("gc", "--json").document["found"] == NOTHING


def test_people_get_a_table_and_what_to_type_next(rdq: Shell, orphan: str) -> None:
    looked = rdq("gc", "--dry-run")
    assert (looked.code, looked.err) == (0, "")
    assert "attempts  2         1        0" in looked.out
    assert looked.out.endswith("next: rdq gc\n")
    assert "next:" not in rdq("gc").out


def test_the_task_itself_stays_as_it_is(rdq: Shell, orphan: str) -> None:
    before = rdq("task", "get", orphan, "--json").document
    rdq("gc")
    assert rdq("task", "get", orphan, "--json").document == before


def test_where_there_is_nothing_it_says_so(rdq: Shell) -> None:
    assert rdq("gc", "--json").document == {
        "examined": NOTHING,
        "found": NOTHING,
        "removed": NOTHING,
        "dry_run": False,
    }
