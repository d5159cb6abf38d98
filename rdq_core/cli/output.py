"""Standard output of a command: JSON for programs, tables of 80 columns for people.

Standard output carries the answer and nothing else. Text from outside reaches a terminal only with
its control characters escaped.
"""

import codecs
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
from typing import Any, Final, TextIO

from rich.cells import cell_len, set_cell_size

from rdq_core.domain.times import parse_time

VIA: Final = "RDQ_VIA"
"""The environment variable that names the ops function to send requests to."""
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_MAX_SCREEN: Final = 200
_MIN_COLUMN: Final = 12
_MAX_FIXED_COLUMN: Final = 24
_COMFORTABLE_COLUMN: Final = 32
_GAP: Final = "  "
_LEFT_TO_RIGHT: Final = "\u200e"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_KIB: Final = 1024
_ASCII: Final = {"─": "-", "━": "=", "╸": "=", "╺": "=", "…": ".", _LEFT_TO_RIGHT: ""}
_TO_ASCII: Final = "rdq.ascii"


class Format(StrEnum):
    """The format of an answer: a table for people, or JSON for programs."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class Output:
    """Standard output of one command.

    `utc` shows times in UTC instead of the machine's time zone. `via` is the ops function that the
    command sends its requests to; None means that it reads and writes the tables itself.
    """

    def __init__(self, kind: Format, *, utc: bool = False, via: str | None = None) -> None:
        self.kind = kind
        self.via = via
        self._zone = UTC if utc else None

    @property
    def is_for_people(self) -> bool:
        """Whether the format is for people."""
        return self.kind is Format.TABLE

    def show(self, document: Mapping[str, Any], print_for_people: Callable[[], None]) -> None:
        """Print an answer: as one document, as one object per line, or by `print_for_people`."""
        match self.kind:
            case Format.JSON:
                _write(json.dumps(document, indent=2, default=str))
            case Format.JSONL:
                for item in _items(document):
                    _write(json.dumps(item, separators=(",", ":"), default=str))
            case Format.TABLE:
                print_for_people()

    def line(self, text: str = "") -> None:
        """Print a line."""
        _write(escaped(text))

    def next(self, *commands: str) -> None:
        """Print the commands to run next."""
        self.line()
        for place, command in enumerate(commands):
            self.line(f"{'next: ' if place == 0 else '      '}{self.typed(command)}")

    def typed(self, command: str) -> str:
        """A command with the --via that this one was given, unless the environment sets it."""
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
        """Print a table.

        On a narrow terminal the column `stretch` is cut first. Where even that does not fit, each
        row is printed as a block with one line per column.
        """
        cells = [
            [_as_printed(escaped("-" if cell is None else cell)) for cell in row] for row in rows
        ]
        widths = [max(map(cell_len, column)) for column in zip(headings, *cells, strict=True)]
        widths = [
            width if place in (0, stretch) else min(width, _MAX_FIXED_COLUMN)
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
        """Print names and values, one pair per line, without the values that are None."""
        shown = [(name, value) for name, value in pairs if value is not None]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            _write(f"{name:<{width}}  {escaped(value)}")

    def moment(self, text: str | None) -> str | None:
        """A time of a document, formatted for people; None stays None."""
        return None if text is None else self.time(parse_time(text, "time"))

    def time(self, moment: datetime | None) -> str | None:
        """A time formatted for people; None stays None."""
        return (
            None if moment is None else moment.astimezone(self._zone).strftime("%Y-%m-%d %H:%M:%S")
        )


def escaped(value: object) -> str:
    """Text with its control characters escaped, so that it cannot control a terminal."""
    return _UNPRINTABLE.sub(
        lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), str(value)
    )


def _as_printed(text: str) -> str:
    """Text as standard output will encode it: an escaped character takes more columns."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, getattr(sys.stdout, "errors", None) or "strict").decode(encoding)


def ago(moment: datetime | None, now: datetime) -> str | None:
    """The time since a moment, as in 12m; until it, as in "in 12m"."""
    if moment is None:
        return None
    seconds = round((now - moment).total_seconds())
    return f"in {span(-seconds)}" if seconds < 0 else span(seconds)


def span(seconds: float) -> str:
    """A time span in its largest unit: 7s, 12m, 3h or 5d."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("m", _MINUTE)):
        if seconds >= 2 * length or (unit == "m" and seconds >= length):
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def exact(milliseconds: int) -> str:
    """A time span in two units: 450ms, 12.5s, 3m 20s, 2h 05m or 4d 06h."""
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
    """A number of bytes: 512 B or 1.5 KiB."""
    return f"{count} B" if count < _KIB else f"{count / _KIB:.1f} KiB"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: 1 task, 3 tasks."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def note(text: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(f"{escaped(text)}\n")


def _items(document: Mapping[str, Any]) -> Iterable[Any]:
    """The items of a list; of any other document, the document itself."""
    if "items" in document:
        items: Iterable[Any] = document["items"]
        return items
    if set(document) == {"submitted", "rejected"}:
        return [*document["submitted"], *document["rejected"]]
    return [document]


def failure(kind: str | None, message: str | None) -> str:
    """An error on one line: the message first, because a narrow terminal cuts the end."""
    first = next(iter((message or "").splitlines()), "")
    if not first:
        return kind or ""
    return f"{first} ({kind})" if kind else first


def _squeeze(widths: list[int], stretch: int) -> None:
    """Make a row fit: cut `stretch` to a comfortable width, then the other wide columns, then
    `stretch` again.
    """
    others = sum(widths) - widths[stretch] + len(_GAP) * (len(widths) - 1)
    short = min(widths[stretch], _COMFORTABLE_COLUMN) - (_columns() - others)
    for place in reversed(range(1, len(widths))):
        if place != stretch and short > 0:
            given = min(short, max(widths[place] - _MIN_COLUMN, 0))
            widths[place] -= given
            others -= given
            short -= given
    widths[stretch] = min(widths[stretch], max(_columns() - others, _MIN_COLUMN))


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
    # After right-to-left text a terminal would place the next columns to its left.
    return f"{fitted}{_LEFT_TO_RIGHT}" if any(map(_is_right_to_left, cell)) else fitted


def _is_right_to_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in ("R", "AL", "AN")


def _columns() -> int:
    return min(shutil.get_terminal_size((80, 24)).columns, _MAX_SCREEN)


def _bold(text: str) -> str:
    """The text in bold, if standard output is a terminal that can show it."""
    wanted = (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    return f"\x1b[1m{text}\x1b[0m" if wanted else text


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def prepare_streams() -> None:
    """Keep characters that the locale cannot encode from ending a command.

    On standard output and error without UTF-8, lines become ASCII art and other characters escapes.
    """
    codecs.register_error(_TO_ASCII, _to_ascii)
    for stream in (sys.stdout, sys.stderr):
        _prepare(stream)


def _prepare(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-")
    if reconfigure is not None and not encoding.startswith("utf"):
        reconfigure(errors=_TO_ASCII)


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(
        _ASCII.get(each, each.encode("unicode_escape").decode()) for each in bad
    ), error.end
