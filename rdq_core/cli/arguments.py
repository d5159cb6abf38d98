"""Values of options, read once for all commands: times, durations, headers, files."""

import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from rdq_core.domain.times import format_time, parse_time
from rdq_core.domain.units import parse_duration
from rdq_core.errors import InputInvalid

PageSize = Annotated[int, typer.Option(help="How many at most, 1 to 500.")]
Cursor = Annotated[
    str | None, typer.Option(help="Where the page before ended, with the same conditions.")
]
PAGE: Final = 50
"""How many a page of a list has, unless somebody says otherwise."""


def next_page(
    command: str, cursor: str | None, page_size: int, **conditions: str | None
) -> list[str]:
    """The command for the next page, if there is one: a cursor is good only for the conditions that
    it came with.
    """
    if cursor is None:
        return []
    given = {
        **conditions,
        "page-size": None if page_size == PAGE else str(page_size),
        "cursor": cursor,
    }
    options = [
        f"--{name} {shlex.quote(value)}" for name, value in given.items() if value is not None
    ]
    return [" ".join([command, *options])]


def moment(text: str | None, field: str) -> datetime | None:
    """A moment: RFC 3339 with a zone."""
    return None if text is None else parse_time(text, field)


def past(text: str | None, field: str, *, now: datetime) -> datetime | None:
    """A moment in the past: how long ago (`3h`), or RFC 3339 with a zone."""
    if text is None or "-" in text:
        return moment(text, field)
    try:
        return now - parse_duration(text)
    except ValueError as problem:
        raise InputInvalid(field, f"{problem}, or an RFC 3339 time with a zone") from None


def past_text(text: str | None, field: str, now: Callable[[], datetime]) -> str | None:
    """The same as requests have it. The clock is asked only when it matters."""
    if text is None:
        return None
    found = moment(text, field) if "-" in text else past(text, field, now=now())
    return None if found is None else format_time(found)


def headers(pairs: Sequence[str]) -> dict[str, str]:
    """Headers given as K=V."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputInvalid("header", "must be given as NAME=VALUE")
        if name in found:
            raise InputInvalid(f"headers.{name}", "is given twice")
        found[name] = value
    return found


def opened(name: str, field: str) -> AbstractContextManager[BinaryIO]:
    """A file to read bytes from; `-` is standard input."""
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(name).open("rb")
    except OSError as problem:
        raise InputInvalid(field, f"{name} can't be read: {problem.strerror}") from None


def content(name: str, field: str) -> bytes:
    """What is in a file; `-` is standard input."""
    with opened(name, field) as stream:
        try:
            return stream.read()
        except OSError as problem:
            raise InputInvalid(field, f"{name} can't be read: {problem.strerror}") from None
