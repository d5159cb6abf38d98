"""The current Lambda invocation, if any: its remaining time, and whether rdq made it.

Lambda's Python runtime passes the context only to the handler. Code further down finds it among the
arguments of a call and the local variables of its callers.
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
    """Whether rdq called this code: the engine in this process, or a sweeper through Lambda.

    `lambda_context` is the invocation's, None outside Lambda. A sweeper sets `custom.rdq` in its
    ClientContext.
    """
    if current_delivery.get() is not None:
        return True
    client_context = getattr(lambda_context, "client_context", None)
    custom = getattr(client_context, "custom", None)
    if custom is None and isinstance(client_context, dict):
        custom = client_context.get("custom")
    return isinstance(custom, dict) and "rdq" in custom


def find_lambda_context(arguments: Iterable[object]) -> Any | None:
    """The Lambda context among `arguments` or among the locals of this thread's callers.

    None outside Lambda.
    """
    given = next((value for value in arguments if remaining_of(value) is not None), None)
    return _among_callers() if given is None else given


def remaining_of(lambda_context: object) -> timedelta | None:
    """The time the invocation has left, 0 or more; None for anything but a Lambda context."""
    ask = getattr(lambda_context, _REMAINING, None)
    millis = ask() if callable(ask) else None
    return timedelta(milliseconds=max(millis, 0)) if isinstance(millis, int) else None


def worker_name(lambda_context: object | None = None) -> str:
    """The worker's name on attempt records: function and request id, or host and process id."""
    function = os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or getattr(
        lambda_context, "function_name", None
    )
    if function:
        return f"lambda:{function}/{getattr(lambda_context, 'aws_request_id', '?')}"[:_MAX_NAME]
    return f"{socket.gethostname()}:{os.getpid()}"[:_MAX_NAME]


def _among_callers() -> Any | None:
    for frame in _callers():
        for value in list(frame.f_locals.values()):
            # On the class: a mock has every attribute, its class doesn't.
            if hasattr(type(value), _REMAINING) and remaining_of(value) is not None:
                return value
    return None


def _callers() -> Iterator[FrameType]:
    """The frames of this thread's functions, innermost first; frames of modules are left out."""
    # inspect.stack would read the source of every caller.
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name != "<module>":
            yield frame
        frame = frame.f_back
