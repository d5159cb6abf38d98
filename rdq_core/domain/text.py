"""Makes text from outside safe to store: replaces what can't be stored, and cuts it to a size."""

import re
from typing import Final

TRUNCATION_MARKER: Final = "…[truncated]"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def scrub(text: str) -> str:
    """The text with NUL and lone surrogates replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def truncate(text: str, limit: int) -> str:
    """The scrubbed text within `limit` bytes of UTF-8. A text that was cut ends with a marker."""
    # A code point takes at least one byte, so nothing past `limit` code points can fit. Cutting
    # first avoids scrubbing megabytes.
    clean = scrub(text[: limit + 1])
    encoded = clean.encode()
    if len(text) <= limit and len(encoded) <= limit:
        return clean
    return cut(encoded, limit - len(TRUNCATION_MARKER.encode())) + TRUNCATION_MARKER


def cut(encoded: bytes, limit: int) -> str:
    """At most `limit` bytes of UTF-8 as text, never half a character."""
    return encoded[:limit].decode("utf-8", "ignore")
