"""Durations, sizes and rates as people write them, to numbers and back.

A duration always has a unit, because a bare 60 is seconds to one reader and milliseconds to the
next. The functions raise ValueError with a message that says what is accepted; callers add the name
of the field.
"""

import re
from datetime import timedelta
from typing import Final

DURATION_FORMS: Final = "a duration with its unit, such as 500ms, 1s, 10m, 24h or 7d"
SIZE_FORMS: Final = "a whole number of bytes, or a size such as 256KiB or 1MiB"
RATE_FORMS: Final = "a rate such as 100/s, 30/m or 5/h"

_NUMBER = r"(?P<whole>[0-9]{1,15})(?:\.(?P<part>[0-9]{1,9}))?"
_DURATION = re.compile(_NUMBER + r"(?P<unit>ms|s|m|h|d)")
_SIZE = re.compile(_NUMBER + r"(?P<unit>KiB|MiB)")
_RATE = re.compile(r"(?P<count>[0-9]{1,9})/(?P<unit>[smh])")

_MILLIS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_BYTES: Final = {"MiB": 1024 * 1024, "KiB": 1024}
_PERIODS: Final = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1)}
_MOST_MILLIS: Final = 36_500 * _MILLIS["d"]
_MILLISECOND: Final = timedelta(milliseconds=1)


def parse_duration(text: object) -> timedelta:
    """A duration such as `500ms`, `1s`, `1.5h`, `7d`: a whole number of milliseconds, at most a
    hundred years.

    A timedelta that is not negative is returned without its microseconds.
    """
    if isinstance(text, timedelta):
        return _checked_span(text)
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"must be {DURATION_FORMS}")
    millis = _scaled(match, _MILLIS, "milliseconds")
    if millis > _MOST_MILLIS:
        raise ValueError("must be a duration of at most 36500d")
    return timedelta(milliseconds=millis)


def format_duration(span: timedelta) -> str:
    """The text that `parse_duration` reads as `span`, in the largest unit that divides it.
    Microseconds are cut off.
    """
    millis = span // _MILLISECOND
    unit = (
        next((unit for unit, size in _MILLIS.items() if millis % size == 0), "ms")
        if millis
        else "s"
    )
    return f"{millis // _MILLIS[unit]}{unit}"


def parse_size(size: object) -> int:
    """A number of bytes, as a number or with KiB or MiB."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise ValueError(f"must be {SIZE_FORMS}")
    return _scaled(match, _BYTES, "bytes")


def format_size(size: int) -> str | int:
    """The size with the largest unit that divides it, or the plain number of bytes."""
    unit = next((unit for unit, of in _BYTES.items() if size and size % of == 0), None)
    return f"{size // _BYTES[unit]}{unit}" if unit else size


def parse_rate(text: object) -> tuple[int, timedelta]:
    """A count and a period: `100/s` is (100, one second)."""
    match = _RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"must be {RATE_FORMS}")
    return int(match["count"]), _PERIODS[match["unit"]]


def format_rate(count: int, period: timedelta) -> str:
    """The rate as `parse_rate` reads it. The period is one second, one minute or one hour."""
    unit = next(unit for unit, length in _PERIODS.items() if length == period)
    return f"{count}/{unit}"


def _scaled(match: re.Match[str], units: dict[str, int], name: str) -> int:
    # Integers throughout: 0.1s is exactly 100 milliseconds, which a float can't represent.
    part = match["part"] or ""
    scaled = int(match["whole"] + part) * units[match["unit"]]
    result, rest = divmod(scaled, int("1" + "0" * len(part)))
    if rest:
        raise ValueError(f"must be a whole number of {name}")
    return result


def _checked_span(span: timedelta) -> timedelta:
    if span < timedelta(0):
        raise ValueError("must not be negative")
    return span // _MILLISECOND * _MILLISECOND
