"""Page cursors: opaque text that says where a list goes on, good for the query that it came from only."""

import base64
import binascii
import json
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.times import format_time, parse_time
from rdq_core.errors import InputInvalid, StaleCursor

_VERSION: Final = 1
_MOST: Final = 8192


def to_cursor(handle: Any, *, queue: str, digest: str) -> str | None:
    """The cursor for a store's handle; None when there is no next page."""
    if handle is None:
        return None
    plain = json.dumps([_VERSION, queue, digest, _tagged(handle)], separators=(",", ":"))
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def from_cursor(cursor: str | None, *, queue: str, digest: str) -> Any:
    """The store's handle again. StaleCursor for a cursor that isn't ours, or is another queue's or filter's."""
    if cursor is None:
        return None
    version, of_queue, of_digest, handle = _decoded(cursor)
    if version != _VERSION or of_queue != queue or of_digest != digest:
        raise _stale("is another query's")
    try:
        return _untagged(handle)
    except (InputInvalid, KeyError, TypeError, ValueError):
        raise _stale("can't be read") from None


def _decoded(cursor: str) -> tuple[Any, Any, Any, Any]:
    if len(cursor) > _MOST:
        raise _stale("can't be read")
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        plain = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
        version, queue, digest, handle = plain
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise _stale("can't be read") from None
    return version, queue, digest, handle


def _stale(what: str) -> StaleCursor:
    return StaleCursor(f"the cursor {what}", hint="start again without a cursor")


def _tagged(value: Any) -> Any:
    """JSON that remembers tuples, times and bytes, which stores' handles are made of."""
    match value:
        case datetime():
            return {"t": format_time(value)}
        case bytes():
            return {"b": base64.b64encode(value).decode()}
        case tuple():
            return {"u": [_tagged(item) for item in value]}
        case list():
            return {"l": [_tagged(item) for item in value]}
        case dict():
            return {"d": {name: _tagged(item) for name, item in value.items()}}
        case _:
            return value


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, inner),) = value.items()
    match tag:
        case "t":
            return parse_time(inner, "cursor")
        case "b":
            return base64.b64decode(inner)
        case "u":
            return tuple(_untagged(item) for item in inner)
        case "l":
            return [_untagged(item) for item in inner]
        case "d":
            return {name: _untagged(item) for name, item in inner.items()}
    raise ValueError(tag)
