"""Attempts: each execution of a task and how it ended, as its history records them."""

import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Final

from rdq_core.domain import limits
from rdq_core.domain.text import truncate


class Outcome(StrEnum):
    """How an attempt ended. What is then done with the task is its resolution (`engine.report`)."""

    SUCCESS = "SUCCESS"
    RETRYABLE_FAILURE = "RETRYABLE_FAILURE"
    PERMANENT_FAILURE = "PERMANENT_FAILURE"
    LEASE_EXPIRED = "LEASE_EXPIRED"


class Code(StrEnum):
    """rdq's own failure codes. They are stable. Applications may use others of the same form."""

    NOT_REGISTERED = "task_not_registered"
    VERSION_MISMATCH = "task_version_mismatch"
    ATTEMPTS_EXHAUSTED = "task_attempts_exhausted"
    LEASE_EXPIRED = "task_lease_expired"
    TIMEOUT = "task_timeout"
    HANDLER_PANICKED = "task_handler_panicked"
    FAILED = "task_failed"
    INPUT_INVALID = "task_input_invalid"
    OUTPUT_INVALID = "task_output_invalid"
    OUTPUT_TOO_LARGE = "task_output_too_large"
    OUTCOME_UNKNOWN = "task_outcome_unknown"
    UNAVAILABLE = "task_unavailable"
    STORE_FAILED = "task_store_failed"
    WORKER_SHUTDOWN = "worker_shutdown"


TYPE_OF_CODE: Final[Mapping[str, str]] = {
    Code.NOT_REGISTERED: "rdq.Unroutable",
    Code.VERSION_MISMATCH: "rdq.HandlerVersionMismatch",
    Code.ATTEMPTS_EXHAUSTED: "rdq.MaxAttemptsExceeded",
    Code.LEASE_EXPIRED: "rdq.LeaseExpired",
    Code.TIMEOUT: "rdq.Timeout",
    Code.HANDLER_PANICKED: "rdq.HandlerCrashed",
    Code.INPUT_INVALID: "rdq.InputInvalid",
    Code.OUTPUT_INVALID: "rdq.OutputInvalid",
    Code.OUTPUT_TOO_LARGE: "rdq.OutputTooLarge",
    Code.OUTCOME_UNKNOWN: "rdq.OutcomeUnknown",
    Code.UNAVAILABLE: "rdq.Unavailable",
    Code.STORE_FAILED: "rdq.StoreFailed",
}
"""The error type of each of rdq's own codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptError:
    """Why an attempt failed, bounded and scrubbed so that it can always be stored.

    `type` is the exception's full name or one of rdq's own; `code` is stable and safe to branch on;
    `detail` is JSON that the handler attached. `unknown` holds fields of a newer writer, which a
    read and a write keep.
    """

    type: str
    message: str | None = None
    code: str = Code.FAILED
    detail: Any = None
    stack: str | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One entry of the history.

    `attempt_no` counts from 1 over the task's whole life. `finished_at` is None when the end was
    not observed (LEASE_EXPIRED). `worker` names the host that ran it. `fencing_token` is None for
    failures from before the submit, which spend no budget.
    """

    attempt_no: int
    started_at: datetime
    finished_at: datetime | None
    outcome: Outcome
    error: AttemptError | None = None
    worker: str | None = None
    fencing_token: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)


class Reported(Exception):
    """A failure reported by a function outside of this process, in any language. `error` is all
    that is known of it.
    """

    def __init__(self, error: AttemptError) -> None:
        super().__init__(error.message or error.type)
        self.error = error


def own_error(code: Code, message: str, *, detail: Any = None) -> AttemptError:
    """An error found by rdq itself, with the type of its code and no stack."""
    return AttemptError(
        type=TYPE_OF_CODE.get(code, "rdq.Failed"),
        code=code,
        message=truncate(message, limits.MAX_MESSAGE_BYTES),
        detail=detail,
    )


def error_from(
    exception: BaseException, *, code: str = Code.FAILED, detail: Any = None
) -> AttemptError:
    """The type, message and stack of an exception. Never raises, whatever the exception's own
    methods do.

    Of a `BaseException` that is no `Exception`, such as SystemExit, the message is not kept.
    """
    if isinstance(exception, Reported):
        return exception.error
    if not isinstance(exception, Exception):
        return AttemptError(
            type=TYPE_OF_CODE[Code.HANDLER_PANICKED],
            code=Code.HANDLER_PANICKED,
            message=f"the handler raised {type_name(exception)}",
            stack=_frames_only(exception),
        )
    return AttemptError(
        type=truncate(type_name(exception), limits.MAX_SHORT_TEXT_BYTES),
        code=code if limits.is_failure_code(code) else Code.FAILED,
        message=truncate(message_of(exception), limits.MAX_MESSAGE_BYTES),
        detail=bounded_detail(detail),
        stack=_stack_of(exception),
    )


def type_name(exception: BaseException) -> str:
    """The full name of the exception's class, as tracebacks print it: built-in ones without a
    module.

    Of a `Reported` failure, the name of the original error.
    """
    if isinstance(exception, Reported):
        return exception.error.type
    cls = type(exception)
    module = str(getattr(cls, "__module__", ""))
    name = str(getattr(cls, "__qualname__", "?"))
    return name if module in ("builtins", "") else f"{module}.{name}"


def message_of(exception: BaseException) -> str:
    """The exception's text, or a note that it has none."""
    try:
        return str(exception)
    # A __str__ of the application may raise anything.
    except BaseException as broken:  # noqa: BLE001
        return f"(no message: __str__ raised {type_name(broken)})"


def bounded_detail(detail: Any) -> Any:
    """The detail, if it is JSON within its bound; else a note of what was wrong with it."""
    if detail is None:
        return None
    try:
        size = len(json.dumps(detail, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError):
        return {"dropped": "not JSON"}
    return detail if size <= limits.MAX_DETAIL_BYTES else {"dropped": "too large", "bytes": size}


def _stack_of(exception: BaseException) -> str:
    """The traceback with its causes. The standard library cuts circular ones."""
    try:
        stack = traceback.TracebackException(type(exception), exception, _own_frames(exception))
        return truncate("".join(stack.format()), limits.MAX_STACK_BYTES)
    except Exception as broken:  # noqa: BLE001 - formatting runs code of the application
        return f"(no stack: formatting it raised {type_name(broken)})"


def _frames_only(exception: BaseException) -> str:
    return truncate("".join(traceback.format_tb(_own_frames(exception))), limits.MAX_STACK_BYTES)


def _own_frames(exception: BaseException) -> TracebackType | None:
    """The traceback from the application's first frame on, without rdq's frames that called it."""
    frames = exception.__traceback__
    while frames is not None and str(frames.tb_frame.f_globals.get("__name__", "")).startswith(
        "rdq_core."
    ):
        frames = frames.tb_next
    return frames or exception.__traceback__
