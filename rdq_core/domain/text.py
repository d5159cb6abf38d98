"""Text from outside made safe to store: scrubbed of what cannot be stored, cut to a size on a
character boundary.
"""

import re
from typing import Final

TRUNCATION_MARKER: Final = "…[truncated]"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def scrub(text: str) -> str:
    """The text with NUL and lone surrogates replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def truncate(text: str, limit: int) -> str:
    """The scrubbed text within `limit` bytes of UTF-8; what was cut off is shown by a marker inside
    the limit.
    """
    # A code point takes at least one byte, so what lies past `limit` code points can't fit: cut
    # before scrubbing 10 MB.
    clean = scrub(text[: limit + 1])
    encoded = clean.encode()
    if len(text) <= limit and len(encoded) <= limit:
        return clean
    return cut(encoded, limit - len(TRUNCATION_MARKER.encode())) + TRUNCATION_MARKER


def cut(encoded: bytes, limit: int) -> str:
    """At most `limit` bytes of UTF-8 as text, never half a character."""
    return encoded[:limit].decode("utf-8", "ignore")
