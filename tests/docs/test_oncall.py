"""docs/oncall.md is a night that has happened: typed again, its commands print what it says."""

import difflib

from tests.docs.oncall_page import DOCUMENT, replayed


def test_the_night_is_as_it_is_told() -> None:
    told = DOCUMENT.read_text()
    played = replayed(told)
    difference = "\n".join(
        difflib.unified_diff(told.splitlines(), played.splitlines(), "told", "played", lineterm="")
    )
    assert played == told, f"{difference}\n\npython -m tests.docs.oncall_page writes it anew"


def test_the_night_leads_from_the_alarm_to_the_audit() -> None:
    told = DOCUMENT.read_text()
    for line in ("3 of the first", "rdq: "):
        assert line not in told
    for line in (
        "12 tasks sent back to billing",
        "2 tasks removed from billing",
        "$ rdq audit list billing",
    ):
        assert line in told
