"""A FunctionError as the attempt's error. Each language's runtime writes its own shape.

    Python, Ruby, .NET    {"errorType", "errorMessage", "stackTrace": ["...", ...]}
    Java                  the same, and "cause": the same again
    Node                  {"errorType", "errorMessage", "trace": ["...", ...]}
    Go                    {"errorType", "errorMessage", "stackTrace": [{"path", "line", "label"}]}
    Lambda itself         {"errorType": "Sandbox.Timedout" | "Runtime.ExitError", "errorMessage"}

Source: the Lambda Developer Guide, "Understanding retry behavior" and the pages on each language's
errors.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rdq_core.domain.attempt import TYPE_OF_CODE, AttemptError, Code
from rdq_core.domain.limits import MAX_MESSAGE_BYTES, MAX_SHORT_TEXT_BYTES, MAX_STACK_BYTES
from rdq_core.domain.text import truncate

_DIED: Final = frozenset(
    {"Runtime.ExitError", "Runtime.OutOfMemory", "Extension.Crash", "Runtime.Unknown"}
)
_TIMED_OUT: Final = "Sandbox.Timedout"
_TIMED_OUT_WORDS: Final = "Task timed out after"
_MOST_CAUSES: Final = 10


def reported_error(payload: bytes) -> AttemptError:
    """The error in a FunctionError's payload, its texts cut to their limits.

    A function that died or ran out of time gets rdq's own type and code.
    """
    try:
        report = json.loads(payload)
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, Mapping):
        return AttemptError(type="rdq.Failed", message="the function failed without saying how")
    kind, message = _text(report, "errorType"), _text(report, "errorMessage")
    code = _code_of(kind, message)
    return AttemptError(
        type=truncate(TYPE_OF_CODE.get(code) or kind or "rdq.Failed", MAX_SHORT_TEXT_BYTES),
        code=code,
        message=truncate(
            f"{kind}: {message}" if code is Code.HANDLER_PANICKED else message, MAX_MESSAGE_BYTES
        ),
        stack=truncate(stack, MAX_STACK_BYTES) if (stack := "\n".join(_stack(report))) else None,
    )


def _code_of(kind: str, message: str) -> Code:
    if kind == _TIMED_OUT or (not kind and _TIMED_OUT_WORDS in message):
        return Code.TIMEOUT
    return Code.HANDLER_PANICKED if kind in _DIED else Code.FAILED


def _text(report: Mapping[str, Any], name: str) -> str:
    value = report.get(name)
    return value if isinstance(value, str) else ""


def _stack(report: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    frames = report.get("stackTrace") or report.get("trace") or []
    for frame in frames if isinstance(frames, list) else [frames]:
        yield _frame(frame)
    cause = report.get("cause")
    if isinstance(cause, Mapping) and depth < _MOST_CAUSES:
        yield f"Caused by: {_text(cause, 'errorType')}: {_text(cause, 'errorMessage')}"
        yield from _stack(cause, depth + 1)


def _frame(frame: object) -> str:
    if isinstance(frame, Mapping):
        return f"{frame.get('path')}:{frame.get('line')} {frame.get('label')}"
    return str(frame).rstrip("\n")
