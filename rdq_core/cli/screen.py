"""What a command prints: for programs one document or one object a line, for people tables of 80 columns.

The invariant: standard output carries the answer and nothing else, and no text from outside reaches a terminal with
its control characters.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_WIDEST: Final = 160
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_KIB: Final = 1024


class Format(StrEnum):
    """For whom the answer is."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class Screen:
    """Standard output of one command. `utc` shows people times in UTC instead of the machine's own zone."""

    def __init__(self, kind: Format, *, utc: bool = False) -> None:
        self.kind = kind
        self._zone = UTC if utc else None

    @property
    def is_for_people(self) -> bool:
        """Whether a person reads it."""
        return self.kind is Format.TABLE

    def show(self, document: Mapping[str, Any], people: Callable[[], None]) -> None:
        """Print an answer: as a document, one object a line (of a list its items), or by calling `people`."""
        match self.kind:
            case Format.JSON:
                _write(json.dumps(document, indent=2, default=str))
            case Format.JSONL:
                for item in _items(document):
                    _write(json.dumps(item, separators=(",", ":"), default=str))
            case Format.TABLE:
                people()

    def line(self, text: str = "") -> None:
        """Print a line for people."""
        _write(text)

    def next(self, *commands: str) -> None:
        """End a screen with what to type next."""
        _write("")
        for place, command in enumerate(commands):
            _write(f"{'next: ' if place == 0 else '      '}{command}")

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[object]], *, stretch: int | None = None) -> None:
        """Print a table. The column `stretch` gives way where the screen is too narrow."""
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), collapse_padding=True)
        for place, heading in enumerate(headings):
            table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1 if place == stretch else None)
        for row in rows:
            table.add_row(*(escaped("-" if cell is None else cell) for cell in row))
        console = Console(markup=False, highlight=False, emoji=False)
        console.width = min(console.width, _WIDEST)
        console.print(table)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print names and values, one pair a line."""
        shown = [(name, value) for name, value in pairs if value is not None]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            _write(f"{name:<{width}}  {escaped(value)}")

    def time(self, moment: datetime | None) -> str | None:
        """A moment as people read it."""
        return None if moment is None else moment.astimezone(self._zone).strftime("%Y-%m-%d %H:%M:%S")


def escaped(value: object) -> str:
    """Text that does to a terminal what it says and nothing else: control characters are written out."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), str(value))


def ago(moment: datetime | None, now: datetime) -> str | None:
    """How long ago, or in how long, in one short word."""
    if moment is None:
        return None
    seconds = round((now - moment).total_seconds())
    return f"in {span(-seconds)}" if seconds < 0 else span(seconds)


def span(seconds: float) -> str:
    """A time span in its largest unit, as in 7s, 12m, 3h or 5d."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("m", _MINUTE)):
        if seconds >= 2 * length or (unit == "m" and seconds >= length):
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def size(count: int) -> str:
    """A number of bytes as people read it."""
    return f"{count} B" if count < _KIB else f"{count / _KIB:.1f} KiB"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun, as in 1 task or 3 tasks."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def note(text: str) -> None:
    """Tell people something on standard error."""
    sys.stderr.write(f"{escaped(text)}\n")


def _items(document: Mapping[str, Any]) -> Iterable[Any]:
    """What a list is a list of; else the document itself."""
    if "items" in document:
        items: Iterable[Any] = document["items"]
        return items
    if set(document) == {"submitted", "rejected"}:
        return [*document["submitted"], *document["rejected"]]
    return [document]


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
