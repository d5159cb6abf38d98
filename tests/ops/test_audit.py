"""Who did what: newest first, of one queue or all, page by page."""

from datetime import timedelta

import pytest

from rdq_core.errors import InputInvalid, StaleCursor
from tests.ops.operators import FILE, Operator


@pytest.fixture
def operator() -> Operator:
    """Three days of changes, one a day: two queues applied, one set, one paused."""
    made = Operator()
    made.apply()
    made.clock.advance("1d")
    made.set("retry.max_attempts=9", reason="a rush")
    made.clock.advance("1d")
    made.edits.pause("email")
    return made


def operations(operator: Operator, queue: str | None = None, **options: object) -> list[str]:
    items = operator.log.list(queue, **options)["items"]  # type: ignore[arg-type]
    return [item["operation"] for item in items if item["phase"] == "done"]


def test_the_newest_come_first_over_all_queues_or_of_one(operator: Operator) -> None:
    assert operations(operator) == ["queue.pause", "queue.set", "queue.apply", "queue.apply"]
    assert operations(operator, "billing") == ["queue.set", "queue.apply"]
    assert operations(operator, "nobody-knows") == []


def test_a_record_has_its_fixed_shape(operator: Operator) -> None:
    done, intent = operator.log.list("billing", page_size=2)["items"]

    assert {name: value for name, value in intent.items() if name != "id"} == {
        "operation_id": intent["id"],
        "at": "2026-07-21T12:00:00.000Z",
        "principal": "ann",
        "verified": True,
        "operation": "queue.set",
        "queue": "billing",
        "reason": "a rush",
        "phase": "intent",
        "detail": {"until": None, "changes": {"retry.max_attempts": [4, 9]}},
    }
    assert (done["operation_id"], done["phase"]) == (intent["id"], "done")


def test_the_list_goes_back_as_far_as_asked_and_thirty_days_otherwise(operator: Operator) -> None:
    assert operations(operator, since=operator.clock.now() - timedelta(hours=30)) == [
        "queue.pause",
        "queue.set",
    ]
    operator.clock.advance("29d")
    assert operations(operator) == ["queue.pause", "queue.set"]


def test_a_principal_is_found_by_a_part_of_the_name(operator: Operator) -> None:
    assert len(operations(operator, principal="an")) == 4
    assert operations(operator, principal="bob") == []


def test_pages_show_each_record_once_while_new_ones_come_in(operator: Operator) -> None:
    whole = [item["id"] for item in operator.log.list()["items"]]
    seen, cursor = [], None
    while True:
        page = operator.log.list(page_size=3, cursor=cursor)
        seen += [item["id"] for item in page["items"]]
        operator.edits.pause("billing", reason=f"page {len(seen)}")
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == whole
    assert len(seen) == 8


def test_a_deleted_queue_keeps_its_records(operator: Operator) -> None:
    operator.edits.delete("email")
    operator.clock.advance("7m")
    operator.edits.delete("email")

    assert operations(operator, "email")[0] == "queue.delete.end"
    assert operations(operator)[0] == "queue.delete.end"


def test_a_cursor_of_another_query_is_stale(operator: Operator) -> None:
    cursor = operator.log.list("billing", page_size=1)["next_cursor"]
    for queue, principal in (("email", None), (None, None), ("billing", "ann")):
        with pytest.raises(StaleCursor):
            operator.log.list(queue, principal=principal, cursor=cursor)


@pytest.mark.parametrize("page_size", [0, 501])
def test_a_page_has_its_bounds(operator: Operator, page_size: int) -> None:
    with pytest.raises(InputInvalid, match="page_size"):
        operator.log.list(page_size=page_size)


def test_a_deploy_that_changes_nothing_leaves_no_record(operator: Operator) -> None:
    before = len(operator.records("id"))

    operator.apply(FILE)

    assert len(operator.records("id")) == before
