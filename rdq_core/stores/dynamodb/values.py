"""DynamoDB's low-level values: built directly, read strictly, measured as DynamoDB bills them.

boto3's resource layer converts values to and from Python, which takes longer than everything else
that rdq does for a request; so the low-level form is used throughout.
"""

import json
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

from rdq_core.domain.limits import MIB
from rdq_core.domain.times import EPOCH, from_millis, to_millis
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.schema import Attr

Value = dict[str, Any]
Item = dict[str, Value]
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

_CONTAINER_BYTES: Final = 3
_LAST_MOMENT: Final = to_millis(datetime.max.replace(tzinfo=EPOCH.tzinfo))


def text(value: str) -> Value:
    """A string."""
    return {"S": value}


def number(value: int) -> Value:
    """A whole number; rdq stores no fractions."""
    return {"N": str(int(value))}


def binary(value: bytes) -> Value:
    """Bytes."""
    return {"B": value}


def moment(value: datetime) -> Value:
    """A time, as epoch milliseconds."""
    return number(to_millis(value))


def seconds_up(value: datetime) -> int:
    """A time of expiry in epoch seconds, as TTL needs it. Rounded up: nothing expires early."""
    return -((EPOCH - value) // timedelta(seconds=1))


def seconds_down(value: datetime) -> int:
    """The present time in epoch seconds. Rounded down: nothing counts as expired early."""
    return (value - EPOCH) // timedelta(seconds=1)


def from_seconds(seconds: int) -> datetime:
    """The time of an epoch second."""
    return from_millis(seconds * 1000)


def compact_json(data: Any) -> bytes:
    """JSON in as few bytes as possible. A lone surrogate, which UTF-8 cannot encode, is escaped."""
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode()


def with_end(item: Item, ends_at: datetime | None) -> Item:
    """The item with its time of expiry; None: it never expires."""
    return item if ends_at is None else {**item, Attr.EXPIRES_AT: number(seconds_up(ends_at))}


def text_of(item: Mapping[str, Any], name: str) -> str | None:
    """A string of an item, None when there is none. The rest of the item need not be readable."""
    value = item.get(name, {}).get("S")
    return value if isinstance(value, str) else None


# -- reading ---------------------------------------------------------------------------------------


class Reader:
    """Strict access to a stored item. An attribute that is not as rdq writes it is a CorruptItem,
    which names the attribute and never its content.
    """

    def __init__(self, item: Mapping[str, Any], what: str, task_id: str | None = None) -> None:
        self.item = item
        self._what = what
        self._task_id = task_id

    def corrupt(self, problem: str) -> CorruptItem:
        """The error for this item."""
        return CorruptItem(
            f"{self._what} cannot be read: {problem}",
            task_id=self._task_id,
            hint="it was edited by hand or written by a newer rdq; it is left as it is",
        )

    def text(self, name: str) -> str:
        """A required string."""
        return str(self._get(name, "S", required=True))

    def number(self, name: str) -> int:
        """A required whole number."""
        value: int = self._get(name, "N", required=True)
        return value

    def moment(self, name: str) -> datetime:
        """A required time."""
        return self._moment(name, self.number(name))

    def choice(self, name: str, choices: type[ChoiceT]) -> ChoiceT:
        """A required string that is one of an enumeration's values."""
        try:
            return choices(self._get(name, "S", required=True))
        except ValueError:
            raise self.corrupt(f"its {choices.__name__.lower()} is unknown to this rdq") from None

    def maybe_text(self, name: str) -> str | None:
        """A string, or None."""
        value = self._get(name, "S")
        return None if value is None else str(value)

    def maybe_bytes(self, name: str) -> bytes | None:
        """Bytes, or None."""
        value = self._get(name, "B")
        return None if value is None else bytes(value)

    def maybe_number(self, name: str) -> int | None:
        """A whole number, or None."""
        value: int | None = self._get(name, "N")
        return value

    def maybe_moment(self, name: str) -> datetime | None:
        """A time, or None."""
        millis = self.maybe_number(name)
        return None if millis is None else self._moment(name, millis)

    def maybe_seconds(self, name: str) -> datetime | None:
        """A time of expiry, or None."""
        value = self.maybe_number(name)
        return None if value is None else self._moment(name, value * 1000)

    def maybe_json(self, name: str) -> Any:
        """The data of a JSON attribute, or None."""
        return self.json_of(name, self.maybe_bytes(name))

    def json_of(self, name: str, content: bytes | None) -> Any:
        """The data of JSON that was stored under this name, or None."""
        try:
            return json.loads(content) if content else None
        except (ValueError, RecursionError):
            raise self.corrupt(f"{name} is not JSON") from None

    def unpacked(self, name: str, *, compressed: bool) -> bytes | None:
        """Bytes that may be compressed, or None."""
        content = self.maybe_bytes(name)
        try:
            return (
                decompress(zlib.decompressobj(), content, MIB)
                if compressed and content is not None
                else content
            )
        except zlib.error:
            raise self.corrupt(f"{name} cannot be decompressed") from None

    def _get(self, name: str, kind: str, *, required: bool = False) -> Any:
        value = self.item.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, Mapping) or kind not in value:
            raise self.corrupt(
                f"{name} is missing" if value is None else f"{name} is of another type"
            )
        try:
            # DynamoDB sends numbers as text, so that no client loses a digit ("Data types").
            return int(value[kind]) if kind == "N" else value[kind]
        except (TypeError, ValueError):
            raise self.corrupt(f"{name} is not a whole number") from None

    def _moment(self, name: str, millis: int) -> datetime:
        # An item that was edited by hand may have any number; Python has no year after 9999.
        if not 0 <= millis <= _LAST_MOMENT:
            raise self.corrupt(f"{name} is not a time that exists")
        return from_millis(millis)


def decompress(stream: "zlib._Decompress", content: bytes, most: int) -> bytes:
    """The decompressed content, at most `most` bytes. Raises zlib.error for more, and for
    incomplete content.
    """
    # One byte more than is accepted: a decompression bomb is noticed and not unpacked.
    whole = stream.decompress(content, most + 1)
    if len(whole) > most or not stream.eof:
        raise zlib.error("incomplete, or too large to be stored by rdq")
    return whole


# -- measuring -------------------------------------------------------------------------------------


def item_size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """The size that DynamoDB bills for an item: names and values ("DynamoDB item sizes and
    formats").
    """
    size = 0
    for name, value in item.items():
        size += len(name.encode()) + value_size(value)
    return size


def value_size(value: Mapping[str, Any]) -> int:
    """The size that DynamoDB bills for one value."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            return len(content)
        case "N":
            digits = str(content)
            # A byte for each two significant digits, aligned on the decimal point, one for the
            # exponent, and one for a minus sign.
            bare = digits.lstrip("-").lstrip("0")
            significant = bare.rstrip("0")
            trailing = len(bare) - len(significant)
            return 1 + (len(significant) + trailing % 2 + 1) // 2 + digits.startswith("-")
        case "M":
            return _CONTAINER_BYTES + len(content) + item_size(content)
        case "L":
            return _CONTAINER_BYTES + len(content) + sum(value_size(each) for each in content)
        case _:
            return 1
