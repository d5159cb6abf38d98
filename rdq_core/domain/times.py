"""Times as rdq writes them: aware UTC, cut to milliseconds, RFC 3339 with three decimals."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from rdq_core.errors import InputInvalid

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_MILLISECOND = timedelta(milliseconds=1)


def to_millis(moment: datetime) -> int:
    """Epoch milliseconds, cut, never rounded up."""
    return (moment - EPOCH) // _MILLISECOND


def from_millis(millis: int) -> datetime:
    """The time of an epoch millisecond."""
    return EPOCH + timedelta(milliseconds=millis)


def cut_to_millis(moment: datetime) -> datetime:
    """The same time in UTC, without its microseconds."""
    return from_millis(to_millis(moment))


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with three decimals and `Z`, as in 2026-07-20T14:03:22.117Z."""
    # timespec cuts, it doesn't round; strftime would not pad the years before 1000.
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: object, field: str) -> datetime:
    """The time in an RFC 3339 text with a zone; digits below milliseconds are cut off. Raises
    InputInvalid.
    """
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise InputInvalid(
            field, "is not an RFC 3339 time with a zone, such as 2026-07-20T14:03:22.117Z"
        )
    try:
        return cut_to_millis(datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError):
        raise InputInvalid(field, "is not a time that exists") from None


def earliest(moments: Iterable[datetime | None]) -> datetime | None:
    """The first of these times; None when there is none among them."""
    return min(filter(None, moments), default=None)


def span_millis(span: timedelta) -> int:
    """A duration as whole milliseconds."""
    return span // _MILLISECOND
