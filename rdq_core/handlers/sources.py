"""AWS records as calls to keep: SQS messages, dead letters, and the failures that Lambda sends to a
destination.

The same record gives the same key, so that one which is delivered twice is one task. What is wrong
with a record is InputInvalid naming the field, never its content.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.limits import MAX_HEADERS, RESERVED_HEADER_PREFIX
from rdq_core.domain.times import cut_to_millis, parse_time
from rdq_core.engine.submit import Draft
from rdq_core.errors import InputInvalid
from rdq_core.handlers.aws_lambda.reports import reported_error
from rdq_core.handlers.encoding import JSON, TEXT, encode_json

_FIFO: Final = ".fifo"
_CALLED_BY: Final = "call it by an SQS event source"


def records_of(event: object) -> list[Any]:
    """The records of an SQS batch. Raises InputInvalid for another event, and another service's
    batch: that would take an answer without ids for success.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise InputInvalid("event", "is not SQS's: it has no list of Records", hint=_CALLED_BY)
    if records and not any(isinstance(each, Mapping) and each.get("messageId") for each in records):
        raise InputInvalid("event", "is not SQS's: its Records have no messageId", hint=_CALLED_BY)
    return records


def draft_of_message(record: object, *, queue: str, handler_ref: str, now: datetime) -> Draft:
    """An SQS record. Its body is the payload; where it is a failed event of Lambda's, that event
    is, and the failure the first attempt. A FIFO queue's group is the concurrency key.
    """
    message = _mapping("record", record)
    body, message_id = _text(message, "body"), _text(message, "messageId")
    source = str(message.get("eventSourceARN") or "")
    destination = _json_object(body)
    if _is_destination(destination):
        return draft_of_failure(
            destination, queue=queue, handler_ref=handler_ref, now=now, source=source
        )
    attributes = _attributes(message.get("messageAttributes"))
    return Draft(
        queue=queue,
        handler_ref=handler_ref,
        payload=_utf8(body),
        content_type=JSON if _is_json(body) else TEXT,
        key=message_id,
        headers=_headers(attributes, source),
        own_headers=False,
        concurrency_key=group_of(message),
        attempts=_dead_letter_attempts(attributes, now),
    )


def group_of(message: Mapping[str, Any]) -> str | None:
    """The group whose order a FIFO queue keeps. One of a standard queue is for fairness, and orders
    nothing.
    """
    system = message.get("attributes")
    if not isinstance(system, Mapping) or not str(message.get("eventSourceARN") or "").endswith(
        _FIFO
    ):
        return None
    group = system.get("MessageGroupId")
    return group if isinstance(group, str) and group else None


def draft_of_failure(
    record: object, *, queue: str, handler_ref: str, now: datetime, source: str | None = None
) -> Draft:
    """A failed asynchronous invocation, as Lambda's on-failure destination gets it."""
    told = _mapping("record", record)
    request = _mapping("requestContext", told.get("requestContext"))
    if "requestPayload" not in told:
        raise InputInvalid("requestPayload", "is missing")
    return Draft(
        queue=queue,
        handler_ref=handler_ref,
        payload=event_bytes(told["requestPayload"]),
        content_type=JSON,
        key=_text(request, "requestId"),
        headers=_headers({}, source or str(request.get("functionArn") or "")),
        own_headers=False,
        attempts=(_failed_invocation(told, now),),
    )


def is_destination_record(event: object) -> bool:
    """Whether an event is what Lambda sends to an on-failure destination."""
    return isinstance(event, Mapping) and _is_destination(event)


def _is_destination(told: Mapping[str, Any] | None) -> bool:
    return (
        told is not None
        and isinstance(told.get("requestContext"), Mapping)
        and "requestPayload" in told
    )


def _failed_invocation(told: Mapping[str, Any], now: datetime) -> Attempt:
    at = _moment(told.get("timestamp"), now)
    payload = told.get("responsePayload")
    if isinstance(payload, Mapping):
        error = reported_error(event_bytes(payload))
    else:  # it was never run, or not to its end: throttled, too old
        request = told.get("requestContext")
        condition = request.get("condition") if isinstance(request, Mapping) else None
        error = reported_error(
            event_bytes({"errorType": f"lambda.{condition}", "errorMessage": "it was not answered"})
        )
    return Attempt(
        attempt_no=1, started_at=at, finished_at=at, outcome=Outcome.RETRYABLE_FAILURE, error=error
    )


def _dead_letter_attempts(attributes: Mapping[str, str], now: datetime) -> tuple[Attempt, ...]:
    """What Lambda's own dead-letter queues say about the failure, in attributes of the message."""
    if not {"RequestID", "ErrorCode", "ErrorMessage"} <= set(attributes):
        return ()
    told = {
        "errorType": f"lambda.{attributes['ErrorCode']}",
        "errorMessage": attributes["ErrorMessage"],
    }
    error = reported_error(event_bytes(told))
    return (
        Attempt(
            attempt_no=1,
            started_at=now,
            finished_at=now,
            outcome=Outcome.RETRYABLE_FAILURE,
            error=error,
        ),
    )


def _headers(attributes: Mapping[str, str], source: str) -> dict[str, str]:
    own = {
        name: value
        for name, value in attributes.items()
        if not name.startswith(RESERVED_HEADER_PREFIX)
    }
    kept = dict(list(own.items())[: MAX_HEADERS - 1])
    return {**kept, "rdq.source": source} if source else kept


def _attributes(given: object) -> dict[str, str]:
    """A message's attributes that are text; binary ones have no place in a header."""
    if not isinstance(given, Mapping):
        return {}
    values = {
        str(name): each.get("stringValue")
        for name, each in given.items()
        if isinstance(each, Mapping)
    }
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputInvalid(name, f"must be an object, not {type(value).__name__}")
    return value


def _text(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name)
    if not isinstance(value, str):
        raise InputInvalid(
            name, "is missing" if value is None else f"must be text, not {type(value).__name__}"
        )
    return value


def _utf8(body: str) -> bytes:
    try:
        return body.encode()
    except UnicodeEncodeError:
        raise InputInvalid("body", "has a lone surrogate, which UTF-8 cannot carry") from None


def _json_object(body: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_json(body: str) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _moment(value: object, now: datetime) -> datetime:
    try:
        return cut_to_millis(parse_time(value, "timestamp"))
    except InputInvalid:
        return now


def event_bytes(told: object) -> bytes:
    """What an event says, as compact JSON. Raises InputInvalid for what UTF-8 or JSON can't carry."""
    try:
        return encode_json(told)
    except ValueError as problem:
        raise InputInvalid("event", str(problem)) from None
