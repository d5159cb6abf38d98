"""The commands of docs/oncall.md print what the page shows."""

import difflib

from tests.docs.oncall_page import DOCUMENT, regenerated


def test_the_page_shows_what_its_commands_print() -> None:
    page = DOCUMENT.read_text()
    current = regenerated(page)
    difference = "\n".join(
        difflib.unified_diff(
            page.splitlines(), current.splitlines(), "page", "current", lineterm=""
        )
    )
    assert current == page, f"{difference}\n\nmake reference updates it"


def test_the_page_leads_from_the_alarm_to_the_audit_log() -> None:
    page = DOCUMENT.read_text()
    for line in ("3 of the first", "rdq: "):
        assert line not in page
    for line in (
        "12 tasks sent back to billing",
        "2 tasks removed from billing",
        "$ rdq audit list billing",
    ):
        assert line in page
