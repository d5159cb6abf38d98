"""Who did what: newest first, of one queue or all, page by page."""

from datetime import timedelta

import pytest

from rdq_core.errors import InputInvalid, StaleCursor
from tests.ops.office import FILE, Office


@pytest.fixture
def office() -> Office:
    """Three days of changes, one a day: two queues applied, one set, one paused."""
    made = Office()
    made.apply()
    made.clock.advance("1d")
    made.set("retry.max_attempts=9", reason="a rush")
    made.clock.advance("1d")
    made.edits.pause("email")
    return made


def operations(office: Office, queue: str | None = None, **options: object) -> list[str]:
    items = office.log.list(queue, **options)["items"]  # type: ignore[arg-type]
    return [item["operation"] for item in items if item["phase"] == "done"]


def test_the_newest_come_first_over_all_queues_or_of_one(office: Office) -> None:
    assert operations(office) == ["queue.pause", "queue.set", "queue.apply", "queue.apply"]
    assert operations(office, "billing") == ["queue.set", "queue.apply"]
    assert operations(office, "nobody-knows") == []


def test_a_record_has_its_fixed_shape(office: Office) -> None:
    done, intent = office.log.list("billing", page_size=2)["items"]

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


def test_the_list_goes_back_as_far_as_asked_and_thirty_days_otherwise(office: Office) -> None:
    assert operations(office, since=office.clock.now() - timedelta(hours=30)) == [
        "queue.pause",
        "queue.set",
    ]
    office.clock.advance("29d")
    assert operations(office) == ["queue.pause", "queue.set"]


def test_a_principal_is_found_by_a_part_of_the_name(office: Office) -> None:
    assert len(operations(office, principal="an")) == 4
    assert operations(office, principal="bob") == []


def test_pages_show_each_record_once_while_new_ones_come_in(office: Office) -> None:
    whole = [item["id"] for item in office.log.list()["items"]]
    seen, cursor = [], None
    while True:
        page = office.log.list(page_size=3, cursor=cursor)
        seen += [item["id"] for item in page["items"]]
        office.edits.pause("billing", reason=f"page {len(seen)}")
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == whole
    assert len(seen) == 8


def test_a_deleted_queue_keeps_its_records(office: Office) -> None:
    office.edits.delete("email")
    office.clock.advance("7m")
    office.edits.delete("email")

    assert operations(office, "email")[0] == "queue.delete.end"
    assert operations(office)[0] == "queue.delete.end"


def test_a_cursor_of_another_query_is_stale(office: Office) -> None:
    cursor = office.log.list("billing", page_size=1)["next_cursor"]
    for queue, principal in (("email", None), (None, None), ("billing", "ann")):
        with pytest.raises(StaleCursor):
            office.log.list(queue, principal=principal, cursor=cursor)


@pytest.mark.parametrize("page_size", [0, 501])
def test_a_page_has_its_bounds(office: Office, page_size: int) -> None:
    with pytest.raises(InputInvalid, match="page_size"):
        office.log.list(page_size=page_size)


def test_a_deploy_that_changes_nothing_leaves_no_record(office: Office) -> None:
    before = len(office.records("id"))

    office.apply(FILE)

    assert len(office.records("id")) == before
