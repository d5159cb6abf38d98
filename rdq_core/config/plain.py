"""Reading settings out of plain JSON data that was validated when it was written.

Cheap enough for a cold start, and still honest: data that was edited by hand gives ConfigInvalid
naming the path, never a KeyError or a TypeError.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from rdq_core.config.refusals import missing, refusal
from rdq_core.domain.units import parse_duration, parse_rate, parse_size
from rdq_core.errors import ConfigInvalid

_Choice = TypeVar("_Choice", bound=StrEnum)


class Plain:
    """One mapping of the data and the path at which it stands."""

    __slots__ = ("_data", "path")

    def __init__(self, data: object, path: str) -> None:
        if not isinstance(data, Mapping):
            raise refusal(path, data, "a mapping of keys to values")
        self._data: Mapping[str, Any] = data
        self.path = path

    def has(self, key: str) -> bool:
        """Whether the key is there at all."""
        return key in self._data

    def is_(self, key: str, word: str) -> bool:
        """Whether exactly this word stands under `key`."""
        return bool(self._data.get(key) == word)

    def refuse(self, key: str, accepted: str) -> ConfigInvalid:
        """The error that says what would have been accepted under `key`."""
        path = f"{self.path}.{key}"
        return (
            refusal(path, self._data[key], accepted)
            if key in self._data
            else missing(path, accepted)
        )

    def section(self, key: str) -> "Plain":
        """The mapping below `key`; an empty one when there is none."""
        return Plain(self._data.get(key, {}), f"{self.path}.{key}")

    def sections(self) -> Iterator[tuple[str, "Plain"]]:
        """Every mapping below this one, with its key."""
        return ((key, self.section(key)) for key in self._data)

    def text(self, key: str) -> str:
        """Text that must be there."""
        value = self._data.get(key)
        if not isinstance(value, str) or not value:
            raise self.refuse(key, "text")
        return value

    def optional_text(self, key: str) -> str | None:
        """Text, or None when the key is absent."""
        return self.text(key) if self.has(key) else None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of text; empty when the key is absent."""
        values = self._data.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self.refuse(key, "a list of text")
        return tuple(values)

    def choice(self, key: str, choices: type[_Choice], usual: _Choice | None = None) -> _Choice:
        """One of an enumeration's values; `usual`, if given, when the key is absent."""
        if usual is not None and not self.has(key):
            return usual
        try:
            return choices(self._data.get(key, ""))
        except ValueError:
            raise self.refuse(key, " or ".join(choices)) from None

    def whole(self, key: str, *, least: int = 1) -> int:
        """A whole number of `least` or more."""
        value = self._data.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.refuse(key, f"a whole number of {least} or more")
        return value

    def number(self, key: str) -> float:
        """Any number; its range is its reader's business."""
        value = self._data.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.refuse(key, "a number")
        return float(value)

    def duration(self, key: str) -> timedelta:
        """A duration with its unit."""
        try:
            return parse_duration(self._data.get(key))
        except ValueError as error:
            raise self.refuse(key, str(error).removeprefix("must be ")) from None

    def duration_or(self, key: str, word: str) -> timedelta | None:
        """A duration, or None for the word that stands for having none."""
        return None if self.is_(key, word) else self.duration(key)

    def size(self, key: str) -> int:
        """A number of bytes."""
        try:
            return parse_size(self._data.get(key))
        except ValueError as error:
            raise self.refuse(key, str(error).removeprefix("must be ")) from None

    def rate(self, key: str) -> tuple[int, timedelta]:
        """How many in which time."""
        try:
            return parse_rate(self._data.get(key))
        except ValueError as error:
            raise self.refuse(key, str(error).removeprefix("must be ")) from None
