"""The error messages of the configuration.

They name the path, the value, what is accepted, and the nearest known word.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, Self

from rdq_core.domain.limits import MAX_NAME_BYTES
from rdq_core.errors import ConfigInvalid

THE_FILE: Final = "the file"
"""The path of an error that concerns a whole file, whose name the caller knows."""
_LONGEST_VALUE: Final = 60
_CLOSE_ENOUGH: Final = 0.5


class Unquoted(str):
    """Text from a file that YAML reads as something else: `NO`, `1:30`, `017`, a date.

    `reading` is what YAML reads it as.
    """

    __slots__ = ("reading",)

    reading: str

    def __new__(cls, text: str, reading: str) -> Self:
        """The text as written, with what YAML makes of it."""
        self = super().__new__(cls, text)
        self.reading = reading
        return self


class WrittenFloat(float):
    """A number with its text, because a float loses the zero of `1.10`."""

    __slots__ = ("written",)

    written: str

    def __new__(cls, text: str) -> Self:
        """The number that `text` is."""
        self = super().__new__(cls, text)
        self.written = text
        return self


def refusal(
    path: str, value: object, accepted: str, *, note: str = "", line: int | None = None
) -> ConfigInvalid:
    """The error for a value that is not accepted at `path`."""
    return ConfigInvalid(path, _sentence(f"{shown(value)} is refused", accepted, note, line))


def missing(path: str, accepted: str) -> ConfigInvalid:
    """The error for a key that must be there."""
    return ConfigInvalid(path, _sentence("is missing", accepted, "", None))


def unknown_key(
    path: str, value: object, known: Iterable[str], *, note: str = "", line: int | None = None
) -> ConfigInvalid:
    """The error for an unknown key, with the nearest known one."""
    keys = list(known)
    meant = note or did_you_mean(path.rpartition(".")[2], keys)
    return ConfigInvalid(
        path,
        _sentence(
            f"unknown key (its value is {shown(value)})",
            ", ".join(keys) or "no key below a value",
            meant,
            line,
        ),
    )


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """`did you mean ...?` with the nearest known word, or nothing when none is near."""
    from difflib import get_close_matches

    near = get_close_matches(str(word).lower(), list(known), n=1, cutoff=_CLOSE_ENOUGH)
    return f"did you mean {near[0]}?" if near else ""


def quote_it(value: object) -> str:
    """How to write a value that is text to its author and something else to YAML.

    Empty for other values.
    """
    if isinstance(value, Unquoted):
        return f'YAML reads {value} as {value.reading}; quote it: "{value}"'
    if value is None or isinstance(value, bool | int | float):
        kind = (
            "nothing" if value is None else "a boolean" if isinstance(value, bool) else "a number"
        )
        return f'YAML reads {shown(value)} as {kind}; quote it: "{shown(value)}"'
    return ""


def joined(path: str, steps: Iterable[str | int]) -> str:
    """The path with further steps, as in `queues.billing.classification.permanent[0]`."""
    for step in steps:
        path += (
            f"[{step}]"
            if isinstance(step, int)
            else f".{_clipped(step)}"
            if path
            else _clipped(step)
        )
    return path


def shown(value: object) -> str:
    """The value as it was written, shortened."""
    return _clipped(_written(value), _LONGEST_VALUE)


def _clipped(text: str, longest: int = MAX_NAME_BYTES) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _written(value: object) -> str:
    match value:
        case WrittenFloat():
            return value.written
        case Unquoted():
            return str(value)
        case _:
            return _as_json(value)


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_foreign)
    except (RecursionError, ValueError):
        return f"({type(value).__name__} that is nested too deeply, or in itself)"


def _foreign(value: Any) -> str:
    return f"({type(value).__name__})"


def _sentence(problem: str, accepted: str, note: str, line: int | None) -> str:
    place = f" (line {line})" if line else ""
    return "; ".join(part for part in (problem, f"accepted: {accepted}", note) if part) + place
