"""What a single configuration value may be: each kind knows how to say it, check it and describe it
to an editor.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from rdq_core.config.refusals import Unquoted, did_you_mean, quote_it
from rdq_core.domain.limits import check_name
from rdq_core.domain.units import (
    DURATION_FORMS,
    RATE_FORMS,
    SIZE_FORMS,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)
from rdq_core.errors import InputInvalid

REFUSED: Final = "refused"
_MOST_PER_PERIOD: Final = 1_000_000
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class Refused(ValueError):
    """A value is not accepted. The text is a note on why, where the list of what is accepted
    doesn't say it all.
    """


@dataclass(frozen=True, slots=True)
class Accepts:
    """An annotation: what is accepted in words, the check that returns the canonical form, the JSON
    Schema.

    The canonical form is plain JSON data, so a validated layer can be stored and compared as it
    stands.
    """

    sentence: str
    check: Callable[[Any], Any]
    json: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """What pydantic runs: our check and nothing of its own."""
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """What an editor is told."""
        return {**self.json, "description": self.sentence[0].upper() + self.sentence[1:]}

    def _validate(self, value: object) -> Any:
        if isinstance(value, str) and value in self.words:
            return str(value)
        try:
            return self.check(value)
        except ValueError as refused:
            note = str(refused) if isinstance(refused, Refused) else ""
            near = did_you_mean(value, self.words) if isinstance(value, str) and self.words else ""
            raise PydanticCustomError(
                REFUSED, "{accepted}", {"accepted": self.sentence, "note": note or near}
            ) from None


def duration(bounds: tuple[timedelta, timedelta], *words: str) -> Accepts:
    """A duration within bounds, or one of the words."""
    least, most = bounds

    def check(value: object) -> str:
        span = parse_duration(value if isinstance(value, str) else None)
        if not least <= span <= most:
            raise ValueError
        return format_duration(span)

    pattern = "|".join([r"[0-9]+(\.[0-9]+)?(ms|s|m|h|d)", *words])
    sentence = f"{DURATION_FORMS}, from {format_duration(least)} to {format_duration(most)}"
    return Accepts(
        _or(sentence, words), check, {"type": "string", "pattern": f"^({pattern})$"}, words
    )


def size(least: int, most: int) -> Accepts:
    """A number of bytes within bounds."""

    def check(value: object) -> str | int:
        number = parse_size(value)
        if not least <= number <= most:
            raise ValueError
        return format_size(number)

    sentence = f"{SIZE_FORMS}, from {least} to {format_size(most)}"
    text = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(KiB|MiB)$"}
    return Accepts(
        sentence, check, {"anyOf": [{"type": "integer", "minimum": least, "maximum": most}, text]}
    )


def rate(*words: str) -> Accepts:
    """A rate of at least one, or one of the words."""

    def check(value: object) -> str:
        count, period = parse_rate(value)
        if not 1 <= count <= _MOST_PER_PERIOD:
            raise ValueError
        return format_rate(count, period)

    pattern = "|".join([r"[1-9][0-9]{0,6}/[smh]", *words])
    sentence = _or(f"{RATE_FORMS}, with a count from 1 to {_MOST_PER_PERIOD}", words)
    return Accepts(sentence, check, {"type": "string", "pattern": f"^({pattern})$"}, words)


def whole(least: int, most: int) -> Accepts:
    """A whole number within bounds; true, 5.0 and "5" are none."""

    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError
        return value

    json = {"type": "integer", "minimum": least, "maximum": most}
    return Accepts(f"a whole number from {least} to {most}", check, json)


def number(least: float, most: float) -> Accepts:
    """A number within bounds, never NaN or infinite."""

    def check(value: object) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not least <= value <= most
        ):
            raise ValueError
        return float(value)

    json = {"type": "number", "minimum": least, "maximum": most}
    return Accepts(f"a number from {least:.0f} to {most:.0f}", check, json)


def choice(*words: str) -> Accepts:
    """One of the words, in exactly this spelling."""

    def check(value: object) -> str:
        raise ValueError(value)

    return Accepts(" or ".join(words), check, {"enum": list(words)}, words)


def text(what: str, most: int) -> Accepts:
    """Printable text of 1 to `most` bytes. What YAML would have read as something else must be
    quoted.
    """

    def check(value: object) -> str:
        if isinstance(value, Unquoted) or not isinstance(value, str):
            raise Refused(quote_it(value))
        if _UNPRINTABLE.search(value) or not 1 <= len(value.encode()) <= most:
            raise ValueError
        return str(value)

    json = {"type": "string", "minLength": 1, "maxLength": most}
    return Accepts(f"{what}: printable text of 1 to {most} bytes", check, json)


def name(what: str) -> Accepts:
    """The name of a queue or a handler."""

    def check(value: object) -> str:
        try:
            return check_name(what, value)
        except InputInvalid as error:
            raise Refused(error.problem) from None

    json = {"type": "string", "pattern": "^(?!rdq[.-])[a-z0-9._-]{1,240}$"}
    return Accepts(
        f"{what}: 1 to 240 of a-z 0-9 . _ -, not starting with rdq. or rdq-", check, json
    )


def _or(sentence: str, words: tuple[str, ...]) -> str:
    return ", or ".join((sentence, *words))
