"""Every bound of a task, and the checks that refuse what exceeds them.

Each check raises InputInvalid, before anything is written, and names the field, the value's size
and the limit. Values themselves don't appear in messages, except names: they may be private.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.errors import InputInvalid

KIB: Final = 1024
MIB: Final = 1024 * KIB

MAX_PAYLOAD_BYTES: Final = MIB
MAX_RESULT_BYTES: Final = MIB
MAX_MESSAGE_BYTES: Final = 4096
MAX_STACK_BYTES: Final = 65_536
MAX_DETAIL_BYTES: Final = 4096
MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 32 * KIB
MAX_UNKNOWN_BYTES: Final = 32 * KIB
MAX_SHORT_TEXT_BYTES: Final = 256
MAX_NAME_BYTES: Final = 240
MAX_CONCURRENCY_KEY_BYTES: Final = 256
MAX_ATTEMPTS_RANGE: Final = (1, 100)
BACKOFF_RANGE: Final = (timedelta(milliseconds=1), timedelta(days=30))
TIMEOUT_RANGE: Final = (timedelta(milliseconds=1), timedelta(hours=24))
LEASE_RANGE: Final = (timedelta(seconds=1), timedelta(hours=24))
RETENTION_RANGE: Final = (timedelta(hours=1), timedelta(days=365))
MAX_RUN_AHEAD: Final = timedelta(days=365)
LONG_OVERDUE: Final = timedelta(days=20)
"""How long after its due time a task's body has to be renewed: before a claim, and by sweepers
while no claim comes.
"""
MAX_RETRY_AFTER: Final = timedelta(days=30)
CLAIM_BATCH_RANGE: Final = (1, 500)
PAGE_RANGE: Final = (1, 500)
MAX_PAGE_BYTES: Final = 4 * MIB

RESERVED_PREFIXES: Final = ("rdq.", "rdq-")
RESERVED_HEADER_PREFIX: Final = "rdq."
WELL_KNOWN_HEADERS: Final = frozenset({"rdq.source", "rdq.submitted_by", "rdq.key"})

_NAME = re.compile(r"[a-z0-9._-]+")
_CODE = re.compile(r"[a-z][a-z0-9_-]{0,127}")


def check_name(field: str, value: object) -> str:
    """A queue or handler name: 1 to 240 characters of `[a-z0-9._-]`, without a reserved prefix."""
    if not isinstance(value, str):
        raise InputInvalid(field, f"must be text, not {type(value).__name__}")
    size = len(value.encode("utf-8", "replace"))
    if not 1 <= size <= MAX_NAME_BYTES:
        raise InputInvalid(field, f"is {size} bytes long; 1 to {MAX_NAME_BYTES} are allowed")
    if not _NAME.fullmatch(value):
        raise InputInvalid(field, f"{value!r} has characters outside a-z 0-9 . _ -")
    if value.startswith(RESERVED_PREFIXES):
        raise InputInvalid(field, f"{value!r} starts with a reserved prefix (rdq. or rdq-)")
    return value


def is_failure_code(code: object) -> bool:
    """Whether an application may use this as its own failure code."""
    return isinstance(code, str) and _CODE.fullmatch(code) is not None


def check_text(
    field: str, value: object, *, most: int = MAX_SHORT_TEXT_BYTES, least: int = 1
) -> str:
    """Text of `least` to `most` bytes of UTF-8, without NUL and lone surrogates."""
    if not isinstance(value, str):
        raise InputInvalid(field, f"must be text, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InputInvalid(field, "has a lone surrogate, which UTF-8 cannot carry") from None
    if not least <= size <= most:
        raise InputInvalid(field, f"is {size} bytes long; {least} to {most} are allowed")
    if "\0" in value:
        raise InputInvalid(field, "has a NUL character")
    return value


def check_bytes(field: str, value: object, *, most: int) -> bytes:
    """Bytes up to `most`."""
    if not isinstance(value, bytes):
        raise InputInvalid(field, f"must be bytes, not {type(value).__name__}")
    if len(value) > most:
        raise InputInvalid(field, f"is {len(value)} bytes long; at most {most} are allowed")
    return value


def check_headers(headers: object, *, own: bool) -> dict[str, str]:
    """A flat map of text to text, bounded in entries and bytes.

    `own` headers come from the caller and may not start with `rdq.`; otherwise the well-known
    `rdq.` headers are allowed too.
    """
    if not isinstance(headers, Mapping):
        raise InputInvalid(
            "headers", f"must be a map of text to text, not {type(headers).__name__}"
        )
    if len(headers) > MAX_HEADERS:
        raise InputInvalid(
            "headers", f"has {len(headers)} entries; at most {MAX_HEADERS} are allowed"
        )
    checked: dict[str, str] = {}
    size = 0
    for given, content in headers.items():
        name = check_text("headers", given, most=MAX_HEADER_BYTES)
        if name.startswith(RESERVED_HEADER_PREFIX) and (own or name not in WELL_KNOWN_HEADERS):
            raise InputInvalid(f"headers.{name}", "names starting with rdq. are reserved")
        checked[name] = check_text(f"headers.{name}", content, most=MAX_HEADER_BYTES, least=0)
        size += len(name.encode()) + len(checked[name].encode())
    if size > MAX_HEADER_BYTES:
        raise InputInvalid(
            "headers", f"are {size} bytes in all; at most {MAX_HEADER_BYTES} are allowed"
        )
    return checked


def check_unknown(unknown: Mapping[str, Any]) -> None:
    """Unknown envelope fields: bounded in the bytes of their JSON, all together."""
    size = (
        len(json.dumps(dict(unknown), ensure_ascii=False).encode("utf-8", "replace"))
        if unknown
        else 0
    )
    if size > MAX_UNKNOWN_BYTES:
        raise InputInvalid(
            "envelope",
            f"unknown fields are {size} bytes in all; at most {MAX_UNKNOWN_BYTES} are allowed",
        )


def check_concurrency_key(value: object) -> str:
    """A concurrency key, trimmed: 1 to 256 bytes without NUL."""
    trimmed = value.strip() if isinstance(value, str) else value
    return check_text("concurrency_key", trimmed, most=MAX_CONCURRENCY_KEY_BYTES)


def check_run_at(value: object, *, now: datetime) -> datetime:
    """A time to run at: timezone-aware and at most 365 days ahead. The past means at once."""
    if not isinstance(value, datetime):
        raise InputInvalid("run_at", f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InputInvalid(
            "run_at",
            "has no time zone",
            hint="use datetime.now(timezone.utc) or another aware datetime",
        )
    if value > now + MAX_RUN_AHEAD:
        raise InputInvalid("run_at", f"is more than {MAX_RUN_AHEAD.days} days ahead")
    return value
