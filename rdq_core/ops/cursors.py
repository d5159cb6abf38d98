"""Page cursors: opaque text marking where a list continues, valid for the query that it came from.

The invariant: nothing is read of a cursor that isn't signed with this installation's key, so no
caller can make one up.
"""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rdq_core.domain import limits
from rdq_core.domain.times import from_millis, to_millis
from rdq_core.engine.ports import CursorKey
from rdq_core.errors import InputInvalid, StaleCursor

_VERSION: Final = 1
_MOST: Final = 16_384
_SIGNATURE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Position:
    """Where a list continues: the handle of the last item returned, and the time of the first
    page.
    """

    handle: Any
    as_of: datetime


class Cursors:
    """Writes and reads cursors under one key."""

    def __init__(self, key: CursorKey) -> None:
        self._key = key

    def write(self, handle: Any, *, query: str, as_of: datetime) -> str | None:
        """The cursor for a store's handle, which is JSON data; None when there is no next page."""
        if handle is None:
            return None
        content = json.dumps(
            [_VERSION, query, to_millis(as_of), handle], separators=(",", ":")
        ).encode()
        return base64.urlsafe_b64encode(self._signature(content) + content).decode().rstrip("=")

    def read(self, cursor: str | None, *, query: str) -> Position | None:
        """The position in a cursor; None for no cursor.

        Raises StaleCursor for one that isn't ours, or is another query's.
        """
        if cursor is None:
            return None
        raw = _decoded(cursor)
        signature, content = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(content)):
            raise _stale("can't be read")
        version, of_query, as_of, handle = json.loads(content)
        if version != _VERSION or of_query != query:
            raise _stale(
                "is another query's",
                "it goes with the conditions of its list, times to the same moment",
            )
        return Position(handle, from_millis(as_of))

    def _signature(self, content: bytes) -> bytes:
        return hmac.digest(self._key.key(), content, "sha256")[:_SIGNATURE_BYTES]


def query_of(*parts: object) -> str:
    """A short name of a query: the same for the same parts."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]


def check_page_size(size: int) -> None:
    """Raises InputInvalid for a page that is too large, or none."""
    least, most = limits.PAGE_RANGE
    if not least <= size <= most:
        raise InputInvalid("page_size", f"is {size}; {least} to {most} are allowed")


def _decoded(cursor: str) -> bytes:
    if len(cursor) > _MOST:
        raise _stale("can't be read")
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _stale("can't be read") from None


def _stale(what: str, hint: str = "start again without a cursor") -> StaleCursor:
    return StaleCursor(f"the cursor {what}", hint=hint)
