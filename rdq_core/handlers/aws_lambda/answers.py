"""Reads a function's answer by the rules of its queue.

No message quotes an answer, which may be private.

    plain       any answer is success, unless `outcome` rules read one of its fields
    http        statusCode: 2xx, 3xx success; 408, 425, 429, 5xx retryable; other 4xx permanent
    sqs         batchItemFailures that has an entry is retryable
    envelope    {"rdq": {"outcome", "error", "retry_after_ms", "result"}}, else success

An answer that doesn't fit its rules is not a success: it is `task_outcome_unknown`, and retryable.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn

from rdq_core.config.targets import Answer, Deliver, HandlerTarget, OutcomeField
from rdq_core.domain.attempt import AttemptError, Code, Outcome, Reported, bounded_detail, own_error
from rdq_core.domain.lifecycle import NO_RESULT, Result
from rdq_core.domain.limits import (
    MAX_MESSAGE_BYTES,
    MAX_RETRY_AFTER,
    MAX_SHORT_TEXT_BYTES,
    MAX_STACK_BYTES,
    check_text,
    is_failure_code,
)
from rdq_core.domain.outcome import Abort, Retryable, RetryAfter
from rdq_core.domain.text import truncate
from rdq_core.errors import InputInvalid
from rdq_core.handlers.aws_lambda.handler_events import NAME
from rdq_core.handlers.encoding import JSON, encode_json

_PASSES: Final = frozenset({408, 425, 429})
_CLIENT_ERROR, _SERVER_ERROR, _BEYOND = 400, 500, 600
_SUCCESS: Final = 200
_STATUS_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Success:
    """A successful answer. Its result is the answer itself, or the one in an envelope's answer."""

    result: Result


def read_answer(target: HandlerTarget, payload: bytes) -> Success:
    """The success in an answer. Raises a signal, or Reported, for an answer that is a failure."""
    value = _value(payload)
    if target.deliver is Deliver.ENVELOPE:
        return _read_envelope(value, payload)
    match target.answer:
        case Answer.HTTP:
            _check_http(value)
        case Answer.SQS:
            if _has_failures(value):
                _fail(
                    Retryable,
                    Code.FAILED,
                    "rdq.BatchItemFailure",
                    "the function named the record as failed",
                )
        case Answer.PLAIN if target.outcome is not None:
            _check_field(target.outcome, value)
    return _success(value, payload)


def looks_like_failure(target: HandlerTarget, payload: bytes) -> Answer | None:
    """The `answer` setting under which a plain answer that counts as success would be a failure.

    None when there is none.
    """
    if (
        target.deliver is Deliver.ENVELOPE
        or target.answer is not Answer.PLAIN
        or target.outcome is not None
    ):
        return None
    value = _value(payload)
    status = _status(value)
    if status is not None and status >= _CLIENT_ERROR:
        return Answer.HTTP
    return Answer.SQS if _has_failures(value) else None


def _value(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None


def _success(value: Any, payload: bytes) -> Success:
    return Success(NO_RESULT if value is None else Result(content=payload, content_type=JSON))


def _fail(signal: type[Abort | Retryable], code: str, kind: str, message: str) -> NoReturn:
    raise signal(code, message) from Reported(AttemptError(type=kind, code=code, message=message))


def _unknown(message: str) -> NoReturn:
    raise Retryable(Code.OUTCOME_UNKNOWN, message) from Reported(
        own_error(Code.OUTCOME_UNKNOWN, message)
    )


# -- http ------------------------------------------------------------------------------------------


def _check_http(value: Any) -> None:
    status = _status(value)
    if status is None or not _SUCCESS <= status < _BEYOND:
        _unknown("the function's answer has no statusCode from 200 to 599")
    if status < _CLIENT_ERROR:
        return
    message, kind = f"the function answered {status}", f"http.{status}"
    if status < _SERVER_ERROR and status not in _PASSES:
        _fail(Abort, Code.FAILED, kind, message)
    wait = _retry_after(value)
    if wait is None:
        _fail(Retryable, Code.FAILED, kind, message)
    try:
        signal = RetryAfter(wait, Code.FAILED, message)
    except (ValueError, TypeError):  # a malformed header is ignored
        _fail(Retryable, Code.FAILED, kind, message)
    raise signal from Reported(AttemptError(type=kind, message=message))


def _status(value: Any) -> int | None:
    status = value.get("statusCode") if isinstance(value, Mapping) else None
    if (
        isinstance(status, str)
        and status.isascii()
        and status.isdigit()
        and len(status) <= _STATUS_DIGITS
    ):
        return int(status)
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def _retry_after(value: Mapping[str, Any]) -> str | None:
    for name in ("headers", "multiValueHeaders"):
        headers = value.get(name)
        for header, content in headers.items() if isinstance(headers, Mapping) else ():
            if str(header).lower() == "retry-after":
                return str(content[0] if isinstance(content, list) and content else content)
    return None


# -- sqs and plain ---------------------------------------------------------------------------------


def _has_failures(value: Any) -> bool:
    failures = value.get("batchItemFailures") if isinstance(value, Mapping) else None
    return isinstance(failures, list) and bool(failures)


def _check_field(rules: OutcomeField, value: Any) -> None:
    field = value.get(rules.field) if isinstance(value, Mapping) else None
    status = field if isinstance(field, str) else None
    if status in rules.success:
        return
    if status is None or status not in (*rules.permanent, *rules.retryable):
        _unknown(
            f"the answer's field {rules.field!r} is missing, "
            "or has a value that the outcome rules don't list"
        )
    signal: type[Abort | Retryable] = Abort if status in rules.permanent else Retryable
    _fail(
        signal,
        Code.FAILED,
        f"rdq.Answer.{status}",
        f"the answer's field {rules.field!r} is {status!r}",
    )


# -- envelope --------------------------------------------------------------------------------------


def _read_envelope(value: Any, payload: bytes) -> Success:
    message = value.get(NAME) if isinstance(value, Mapping) else None
    if not isinstance(message, Mapping) or not ("outcome" in message or "error" in message):
        return _success(value, payload)
    outcome, error = message.get("outcome"), message.get("error")
    if outcome == Outcome.SUCCESS:
        return Success(_stated_result(message))
    failure = _stated_error(error if isinstance(error, Mapping) else {})
    if outcome is None:
        raise Reported(failure)
    if outcome not in (Outcome.RETRYABLE_FAILURE, Outcome.PERMANENT_FAILURE):
        _unknown("the answer's rdq.outcome is not an outcome that rdq knows")
    raise _stated_signal(
        message, failure, permanent=outcome == Outcome.PERMANENT_FAILURE
    ) from Reported(failure)


def _stated_signal(
    message: Mapping[str, Any], failure: AttemptError, *, permanent: bool
) -> Exception:
    text, wait = failure.message or "", message.get("retry_after_ms")
    if permanent:
        error = message.get("error")
        group = error.get("fingerprint") if isinstance(error, Mapping) else None
        group = group if isinstance(group, str) else None
        return Abort(failure.code, text, detail=failure.detail, fingerprint=group)
    if isinstance(wait, int) and not isinstance(wait, bool) and wait >= 0:
        return RetryAfter(
            min(timedelta(milliseconds=min(wait, 10**11)), MAX_RETRY_AFTER),
            failure.code,
            text,
            detail=failure.detail,
        )
    return Retryable(failure.code, text, detail=failure.detail)


def _stated_error(error: Mapping[str, Any]) -> AttemptError:
    def text(name: str, most: int) -> str | None:
        value = error.get(name)
        return truncate(value, most) if isinstance(value, str) and value else None

    code = error.get("code")
    return AttemptError(
        type=text("type", MAX_SHORT_TEXT_BYTES) or "rdq.Failed",
        code=code if isinstance(code, str) and is_failure_code(code) else Code.FAILED,
        message=text("message", MAX_MESSAGE_BYTES),
        detail=bounded_detail(error.get("detail")),
        stack=text("stack", MAX_STACK_BYTES),
    )


def _stated_result(message: Mapping[str, Any]) -> Result:
    """The result of an answer with an explicit outcome: JSON, or base64 of another content type."""
    if message.get("result_base64") is not None:
        try:
            content = base64.b64decode(message["result_base64"], validate=True)
            content_type = check_text(
                "type", message.get("result_content_type") or "application/octet-stream"
            )
        except (ValueError, TypeError):
            _unknown("the answer's rdq.result_base64 is not base64")
        except InputInvalid:
            _unknown("the answer's rdq.result_content_type is not a content type")
        return Result(content=content, content_type=content_type)
    result = message.get("result")
    try:
        return (
            NO_RESULT if result is None else Result(content=encode_json(result), content_type=JSON)
        )
    except ValueError:
        _unknown("the answer's rdq.result can't be stored as JSON")
