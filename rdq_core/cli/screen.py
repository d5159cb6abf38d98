"""What a command prints: for programs one document or one object a line, for people tables of 80
columns.

The invariant: standard output carries the answer and nothing else, and no text from outside reaches
a terminal with its control characters.
"""

import json
import os
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from rdq_core.domain.times import parse_time

VIA: Final = "RDQ_VIA"
"""The environment variable that names the ops function to ask."""
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_WIDEST: Final = 200
_NARROWEST: Final = 12
_WIDE_ENOUGH: Final = 24
_COMFORTABLE: Final = 32
_GAP: Final = "  "
_LEFT_TO_RIGHT: Final = "\u200e"
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
    """Standard output of one command. `utc` shows people times in UTC instead of the machine's own
    zone.

    `via` is the ops function that the command asks, None where it asks DynamoDB itself.
    """

    def __init__(self, kind: Format, *, utc: bool = False, via: str | None = None) -> None:
        self.kind = kind
        self.via = via
        self._zone = UTC if utc else None

    @property
    def is_for_people(self) -> bool:
        """Whether a person reads it."""
        return self.kind is Format.TABLE

    def show(self, document: Mapping[str, Any], people: Callable[[], None]) -> None:
        """Print an answer: as a document, one object a line (of a list its items), or by calling
        `people`.
        """
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
        _write(escaped(text))

    def next(self, *commands: str) -> None:
        """End a screen with what to type next."""
        self.line()
        for place, command in enumerate(commands):
            self.line(f"{'next: ' if place == 0 else '      '}{self.typed(command)}")

    def typed(self, command: str) -> str:
        """A command as it has to be typed: to the ops function that this one asks, unless the
        environment names it.
        """
        if self.via is None or os.environ.get(VIA) == self.via or not command.startswith("rdq "):
            return command
        return f"{command} --via {shlex.quote(self.via)}"

    def table(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        stretch: int | None = None,
    ) -> None:
        """Print a table. The column `stretch` gives way where the screen is narrow; where that
        isn't enough, a row is a block of lines, one a column.
        """
        cells = [[_carried(escaped("-" if cell is None else cell)) for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(headings, *cells, strict=True)]
        widths = [
            width if place in (0, stretch) else min(width, _WIDE_ENOUGH)
            for place, width in enumerate(widths)
        ]
        if stretch is not None:
            _squeeze(widths, stretch)
        whole = sum(widths) + len(_GAP) * (len(widths) - 1)
        if whole > _columns():
            self._blocks(headings, cells)
            return
        _write(_bold(_row(headings, widths)))
        _write("─" * whole)
        for row in cells:
            _write(_row(row, widths))

    def _blocks(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        for place, row in enumerate(rows):
            if place:
                self.line()
            self.fields((name, cell) for name, cell in zip(headings, row, strict=True) if cell)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print names and values, one pair a line."""
        shown = [(name, value) for name, value in pairs if value is not None]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            _write(f"{name:<{width}}  {escaped(value)}")

    def moment(self, text: str | None) -> str | None:
        """A moment out of a document, as people read it."""
        return None if text is None else self.time(parse_time(text, "time"))

    def time(self, moment: datetime | None) -> str | None:
        """A moment as people read it."""
        return (
            None if moment is None else moment.astimezone(self._zone).strftime("%Y-%m-%d %H:%M:%S")
        )


def escaped(value: object) -> str:
    """Text that does to a terminal what it says and nothing else: control characters are written
    out.
    """
    return _UNPRINTABLE.sub(
        lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), str(value)
    )


def _carried(text: str) -> str:
    """The same as standard output carries it: what it has no characters for is longer."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, getattr(sys.stdout, "errors", None) or "strict").decode(encoding)


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


def exact(milliseconds: int) -> str:
    """A time span as a ladder has it, as in 450ms, 12.5s, 3m 20s, 2h 05m or 4d 06h."""
    seconds = milliseconds / 1000
    if seconds < _MINUTE:
        return f"{milliseconds}ms" if 0 < seconds < 1 else f"{seconds:.1f}".removesuffix(".0") + "s"
    for unit, length, part, of in (
        ("d", _DAY, "h", _HOUR),
        ("h", _HOUR, "m", _MINUTE),
        ("m", _MINUTE, "s", 1),
    ):
        if seconds >= length:
            whole, rest = divmod(round(seconds / of), length // of)
            return f"{whole}{unit} {rest:02d}{part}"
    raise AssertionError(milliseconds)


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


def failure(kind: str | None, message: str | None) -> str:
    """What went wrong on one line. The message comes first, because the end gives way where the
    screen is narrow.
    """
    first = next(iter((message or "").splitlines()), "")
    if not first:
        return kind or ""
    return f"{first} ({kind})" if kind else first


def _squeeze(widths: list[int], stretch: int) -> None:
    """Make a row fit: first the column `stretch` gives way as far as it stays comfortable, then the
    wide others.
    """
    others = sum(widths) - widths[stretch] + len(_GAP) * (len(widths) - 1)
    short = min(widths[stretch], _COMFORTABLE) - (_columns() - others)
    for place in reversed(range(1, len(widths))):
        if place != stretch and short > 0:
            given = min(short, max(widths[place] - _NARROWEST, 0))
            widths[place] -= given
            others -= given
            short -= given
    widths[stretch] = min(widths[stretch], max(_columns() - others, _NARROWEST))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(
        _fitted(cell, width) for cell, width in zip(cells, widths, strict=True)
    ).rstrip()


def _fitted(cell: str, width: int) -> str:
    fitted = (
        set_cell_size(cell, width)
        if cell_len(cell) <= width
        else f"{set_cell_size(cell, width - 1)}…"
    )
    # Behind text that runs to the left a terminal would go on to the left, and put the next columns
    # in between.
    return f"{fitted}{_LEFT_TO_RIGHT}" if any(map(_runs_left, cell)) else fitted


def _runs_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in ("R", "AL", "AN")


def _columns() -> int:
    return min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)


def _bold(text: str) -> str:
    """Bold where a terminal wants it."""
    wanted = (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    return f"\x1b[1m{text}\x1b[0m" if wanted else text


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
