"""The Lambda invocation that code runs in, where it runs in one: how much time is left, and whether
rdq made it.

Nothing in Lambda's Python runtime tells the invocation's context to code deep below the handler, so
it is looked for where it must be: among the arguments of a call, or of one of its callers.
"""

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from types import FrameType
from typing import Any, Final

from rdq_core.engine.context import current_delivery

_REMAINING: Final = "get_remaining_time_in_millis"
_MAX_NAME: Final = 256


def is_delivery(lambda_context: object | None = None) -> bool:
    """Whether this code was called by rdq: by this process's engine, or as a function that a
    sweeper has invoked.

    `lambda_context` is the invocation's, None outside of Lambda; a sweeper leaves its mark in
    `custom.rdq` of the ClientContext.
    """
    if current_delivery() is not None:
        return True
    client_context = getattr(lambda_context, "client_context", None)
    custom = getattr(client_context, "custom", None)
    if custom is None and isinstance(client_context, dict):
        custom = client_context.get("custom")
    return isinstance(custom, dict) and "rdq" in custom


def find_lambda_context(arguments: Iterable[object]) -> Any | None:
    """The Lambda context among `arguments`, else among those of the callers of this thread; None
    outside of Lambda.
    """
    given = next((value for value in arguments if remaining_of(value) is not None), None)
    return _among_callers() if given is None else given


def remaining_of(lambda_context: object) -> timedelta | None:
    """The time that the invocation has left, None for what is no Lambda context. Never negative."""
    ask = getattr(lambda_context, _REMAINING, None)
    millis = ask() if callable(ask) else None
    return timedelta(milliseconds=max(millis, 0)) if isinstance(millis, int) else None


def worker_name(lambda_context: object | None = None) -> str:
    """Who runs this, as attempt records have it: function and request id on Lambda, else host and
    process id.
    """
    function = os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or getattr(
        lambda_context, "function_name", None
    )
    if function:
        return f"lambda:{function}/{getattr(lambda_context, 'aws_request_id', '?')}"[:_MAX_NAME]
    return f"{socket.gethostname()}:{os.getpid()}"[:_MAX_NAME]


def _among_callers() -> Any | None:
    for frame in _callers():
        for value in list(frame.f_locals.values()):
            # Asked of the class: a mock answers to every name, its class doesn't.
            if hasattr(type(value), _REMAINING) and remaining_of(value) is not None:
                return value
    return None


def _callers() -> Iterator[FrameType]:
    """The frames of this thread's functions, innermost first. Modules have globals, but no
    invocation.
    """
    # inspect.stack would read every caller's source
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name != "<module>":
            yield frame
        frame = frame.f_back
