"""Cursors: they bring back what went in, and nothing else is believed."""

import base64
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.errors import StaleCursor
from rdq_core.ops.cursors import Cursors, Position
from rdq_core.stores.memory_control import MemoryCursorKey
from rdq_core.testing.clock import NOON

OURS = Cursors(MemoryCursorKey(b"a key that nobody knows"))


def a_cursor(handle: Any = None, **options: Any) -> str:
    cursor = OURS.write(handle or [1, "a"], **{"query": "q", "as_of": NOON, **options})
    assert cursor is not None
    return cursor


@pytest.mark.parametrize(
    "handle", [1, "x", [1, "a"], {"0": ["17", "01J"], "3": []}, {}, {"s": {"N": "1"}}]
)
def test_a_cursor_brings_back_the_handle_that_went_in(handle: Any) -> None:
    as_of = NOON + timedelta(milliseconds=1)
    cursor = OURS.write(handle, query="q", as_of=as_of)
    assert OURS.read(cursor, query="q") == Position(handle, as_of)


def test_after_the_last_page_there_is_no_cursor() -> None:
    assert OURS.write(None, query="q", as_of=NOON) is None
    assert OURS.read(None, query="q") is None


def test_a_cursor_of_another_query_is_stale() -> None:
    with pytest.raises(StaleCursor, match="another query"):
        OURS.read(a_cursor(), query="p")


def test_a_cursor_of_another_installation_is_stale() -> None:
    theirs = Cursors(MemoryCursorKey(b"another key that nobody knows"))
    with pytest.raises(StaleCursor):
        theirs.read(a_cursor(), query="q")


def test_each_bit_that_is_changed_makes_it_stale() -> None:
    raw = base64.urlsafe_b64decode(a_cursor() + "==")
    for place in range(len(raw)):
        changed = bytes([*raw[:place], raw[place] ^ 1, *raw[place + 1 :]])
        with pytest.raises(StaleCursor):
            OURS.read(base64.urlsafe_b64encode(changed).decode().rstrip("="), query="q")


@pytest.mark.parametrize(
    "garbled", ["", "%%%", "AAAA", "é", "A" * 100_000, a_cursor()[:-3], a_cursor() + "AAAA"]
)
def test_what_is_no_cursor_is_stale(garbled: str) -> None:
    with pytest.raises(StaleCursor):
        OURS.read(garbled, query="q")
