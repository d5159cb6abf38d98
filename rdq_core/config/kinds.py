"""The kinds of value that a configuration key takes.

A kind reads, checks and writes values, and names what it accepts in a refusal. Only the standard
library is needed. `read` trusts the range of what it reads, because a stored value was checked when
it was written, possibly by an rdq with wider ranges; `check` trusts nothing.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from rdq_core.config.messages import Unquoted, did_you_mean, quote_it, refusal
from rdq_core.domain import units
from rdq_core.domain.limits import check_name
from rdq_core.errors import InputInvalid

Value_co = TypeVar("Value_co", covariant=True)
Word = TypeVar("Word")
Choice = TypeVar("Choice", bound=StrEnum)

_MOST_PER_PERIOD: Final = 1_000_000
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_NO_WORDS: Final[Mapping[str, Any]] = {}


class NotAccepted(ValueError):
    """A value is not accepted. The text, if any, says more than the list of what is accepted."""


def _as_it_is(value: Any) -> Any:
    return value


def _always(_value: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueKind(Generic[Value_co]):
    """One kind of single value.

    `accepted` says in a refusal what the key takes. `parse` makes the typed value of canonical JSON
    data, and passes a typed value through. `allows` is the range. `write` makes canonical JSON data
    of the typed value. `words` are texts with a meaning of their own, such as `never`, and their
    typed values. `json` is the JSON Schema.
    """

    accepted: str
    parse: Callable[[object], Value_co]
    allows: Callable[[Any], bool] = _always
    write: Callable[[Any], Any] = _as_it_is
    json: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, Value_co] = field(default_factory=dict)
    absent: Any = None

    def read(self, value: object, path: str) -> Value_co:
        """The typed value of stored data. Raises ConfigInvalid naming the path."""
        try:
            return self._parsed(value)
        except ValueError:
            raise refusal(path, value, self.accepted) from None

    def check(self, value: object) -> Any:
        """A value from outside in canonical spelling. Raises ValueError."""
        if isinstance(value, timedelta | tuple):  # typed values, which JSON and YAML don't have
            raise NotAccepted
        parsed = self._parsed(value)
        if not self.allows(parsed):
            raise NotAccepted
        return self.plain(parsed)

    def plain(self, value: Any) -> Any:
        """The typed value as canonical JSON data."""
        for word, meaning in self.words.items():
            if value == meaning:
                return word
        return self.write(value)

    def note(self, value: object, error: ValueError) -> str:
        """What a refusal adds to `accepted`: the explanation, or the nearest word."""
        if isinstance(error, NotAccepted) and str(error):
            return str(error)
        return did_you_mean(value, self.words) if isinstance(value, str) and self.words else ""

    def _parsed(self, value: object) -> Value_co:
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        return self.parse(value)


def duration(bounds: tuple[timedelta, timedelta]) -> ValueKind[timedelta]:
    """A duration within bounds."""
    return duration_or(bounds, _NO_WORDS)


def duration_or(
    bounds: tuple[timedelta, timedelta], words: Mapping[str, Word]
) -> ValueKind[timedelta | Word]:
    """A duration within bounds, or one of the words."""
    least, most = bounds
    pattern = "|".join([r"[0-9]+(\.[0-9]+)?(ms|s|m|h|d)", *words])
    shortest, longest = units.format_duration(least), units.format_duration(most)

    def allows(value: object) -> bool:
        return not isinstance(value, timedelta) or least <= value <= most

    def parse(value: object) -> timedelta | Word:
        return units.parse_duration(value)

    return ValueKind(
        accepted=_or(f"{units.DURATION_FORMS}, from {shortest} to {longest}", words),
        parse=parse,
        allows=allows,
        write=units.format_duration,
        json={"type": "string", "pattern": f"^({pattern})$"},
        words=words,
    )


def size(least: int, most: int) -> ValueKind[int]:
    """A number of bytes within bounds."""
    text = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(KiB|MiB)$"}
    return ValueKind(
        accepted=f"{units.SIZE_FORMS}, from {least} to {units.format_size(most)}",
        parse=units.parse_size,
        allows=lambda number: least <= number <= most,
        write=units.format_size,
        json={"anyOf": [{"type": "integer", "minimum": least, "maximum": most}, text]},
    )


def rate_or(word: str) -> ValueKind[tuple[int, timedelta] | None]:
    """At least one in a second, minute or hour; the word, read as None, stands for no limit."""

    def parse(value: object) -> tuple[int, timedelta]:
        return value if isinstance(value, tuple) else units.parse_rate(value)

    return ValueKind(
        accepted=_or(f"{units.RATE_FORMS}, with a count from 1 to {_MOST_PER_PERIOD}", [word]),
        parse=parse,
        allows=lambda rate: rate is None or 1 <= rate[0] <= _MOST_PER_PERIOD,
        write=lambda rate: units.format_rate(*rate),
        json={"type": "string", "pattern": f"^([1-9][0-9]{{0,6}}/[smh]|{word})$"},
        words={word: None},
    )


def whole(least: int, most: int) -> ValueKind[int]:
    """A whole number within bounds; true, 5.0 and "5" are refused."""

    def parse(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise NotAccepted
        return value

    return ValueKind(
        accepted=f"a whole number from {least} to {most}" if least < most else str(least),
        parse=parse,
        allows=lambda number: number <= most,
        json={"type": "integer", "minimum": least, "maximum": most},
    )


def number(least: float, most: float) -> ValueKind[float]:
    """A number within bounds, never NaN or infinite."""

    def parse(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise NotAccepted
        try:
            return float(value)
        except OverflowError:
            raise NotAccepted from None

    return ValueKind(
        accepted=f"a number from {least:.0f} to {most:.0f}",
        parse=parse,
        allows=lambda number: least <= number <= most,
        json={"type": "number", "minimum": least, "maximum": most},
    )


def choice(of: type[Choice]) -> ValueKind[Choice]:
    """One of an enumeration's words, in exactly this spelling."""

    def parse(value: object) -> Choice:
        if not isinstance(value, of):
            raise NotAccepted
        return value

    return ValueKind(
        accepted=" or ".join(of),
        parse=parse,
        write=str,
        json={"enum": [str(word) for word in of]},
        words={str(word): word for word in of},
    )


def text(what: str, most: int) -> ValueKind[str]:
    """Printable text of 1 to `most` bytes.

    What YAML would have read as something else must be quoted.
    """

    def parse(value: object) -> str:
        if isinstance(value, Unquoted) or not isinstance(value, str):
            raise NotAccepted(quote_it(value))
        if not value:
            raise NotAccepted
        return value

    return ValueKind(
        accepted=f"{what}: printable text of 1 to {most} bytes",
        parse=parse,
        allows=lambda text: not _UNPRINTABLE.search(text) and len(text.encode()) <= most,
        write=str,
        json={"type": "string", "minLength": 1, "maxLength": most},
    )


def name_of(what: str) -> ValueKind[str]:
    """The name of a queue or a handler."""

    def parse(value: object) -> str:
        try:
            return check_name(what, value)
        except InputInvalid as error:
            raise NotAccepted(error.problem) from None

    return ValueKind(
        accepted=f"{what}: 1 to 240 of a-z 0-9 . _ -, not starting with rdq. or rdq-",
        parse=parse,
        json={"type": "string", "pattern": "^(?!rdq[.-])[a-z0-9._-]{1,240}$"},
    )


@dataclass(frozen=True, slots=True)
class TextList:
    """A list of texts of one kind."""

    item: ValueKind[str]
    accepted: str = 'a list of text, such as ["*Timeout*"]'
    absent: tuple[str, ...] = ()

    def read(self, value: object, path: str) -> tuple[str, ...]:
        """The texts of stored data. Raises ConfigInvalid naming the path."""
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise refusal(path, value, self.accepted)
        return tuple(value)

    def plain(self, value: tuple[str, ...]) -> list[str]:
        """The texts as JSON data."""
        return list(value)


def _or(sentence: str, words: Mapping[str, Any] | list[str]) -> str:
    return ", or ".join((sentence, *words))
