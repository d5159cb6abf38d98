"""Fingerprints: a short, versioned digest by which failures of the same cause are grouped.

It is made of the handler, the code, the error type and the innermost frame of the application's own
code, without line numbers, so that a deploy does not split a group. Without such a frame the
message is used, stripped of all that varies from case to case.
"""

import hashlib
import re
from typing import Final

from rdq_core.domain.attempt import AttemptError

VERSION: Final = "v1"
_LENGTH: Final = 12

_PYTHON_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"\n]+)", line \d+, in (?P<function>[^\n]+)$', re.MULTILINE
)
_NODE_FRAME = re.compile(
    r"^\s*at (?:async )?(?P<function>[\w$.<>\[\] ]+) \((?P<file>[^()\n]+?):\d+:\d+\)$", re.MULTILINE
)
_JAVA_FRAME = re.compile(
    r"^\s*at (?P<function>[\w$.<>/]+)"
    r"\((?P<file>[\w$]+\.\w+|Native Method|Unknown Source)[^)\n]*\)$",
    re.MULTILINE,
)
_FOREIGN: Final = (
    "site-packages",
    "dist-packages",
    "/lib/python",
    "rdq_core/",
    "<frozen",
    "node_modules",
    "node:",
    "/var/runtime/",
)
_FOREIGN_JAVA: Final = ("java.", "javax.", "jdk.", "sun.", "com.amazonaws.", "software.amazon.")

_VARYING: Final = (
    (re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "<id>"),
    (re.compile(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\"|`[^`\n]{0,200}`"), "<text>"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\\/][\w.@%+~-]+){2,}[\\/]?"), "<path>"),
    (re.compile(r"\b(?:0x[0-9a-fA-F]+|(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,})\b"), "<hex>"),
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b"), "<id>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
)


def fingerprint(handler_ref: str, error: AttemptError, *, override: str | None = None) -> str:
    """The group of a failure, such as `v1:3f2a90c1d0ab`. An `override` by the handler replaces all
    but the handler's name.
    """
    place = (
        (override,)
        if override
        else (error.code, error.type, top_frame(error.stack) or normalise(error.message or ""))
    )
    digest = hashlib.sha256(
        "\0".join((handler_ref, *map(str, place))).encode("utf-8", "replace")
    ).hexdigest()
    return f"{VERSION}:{digest[:_LENGTH]}"


def top_frame(stack: str | None) -> str | None:
    """The innermost frame of the application's own code, as `module:function`; None if there is no
    such frame.
    """
    if not stack:
        return None
    python = [_frame(found) for found in _PYTHON_FRAME.finditer(stack) if _is_own(found["file"])]
    if python:
        return python[-1]
    node = next(
        (_frame(found) for found in _NODE_FRAME.finditer(stack) if _is_own(found["file"])), None
    )
    return node or _java_frame(stack)


def _java_frame(stack: str) -> str | None:
    functions = (found["function"] for found in _JAVA_FRAME.finditer(stack))
    return next((name for name in functions if not name.startswith(_FOREIGN_JAVA)), None)


def _is_own(file: str) -> bool:
    return not any(part in file for part in _FOREIGN)


def _frame(found: re.Match[str]) -> str:
    stem = re.split(r"[\\/]", found["file"])[-1].rsplit(".", 1)[0]
    return f"{stem}:{found['function'].strip()}"


def normalise(message: str) -> str:
    """The message without numbers, ids, hex, quoted text and paths."""
    for pattern, placeholder in _VARYING:
        message = pattern.sub(placeholder, message)
    return " ".join(message.split())
