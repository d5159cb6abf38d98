"""Records of AWS services as drafts: SQS messages, and failures from Lambda's dead-letter
queues and on-failure destinations.

A record's own id is the draft's key, so a record that is delivered twice is one task. A malformed
record raises InputInvalid, which names the field and never the content.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt, AttemptError, Outcome
from rdq_core.domain.limits import MAX_HEADERS, RESERVED_HEADER_PREFIX
from rdq_core.domain.times import cut_to_millis, parse_time
from rdq_core.engine.submit import Draft
from rdq_core.errors import InputInvalid
from rdq_core.handlers.aws_lambda.reports import reported_error
from rdq_core.handlers.encoding import JSON, TEXT, encode_json

_FIFO: Final = ".fifo"
_CALLED_BY: Final = "call it by an SQS event source"


def records_of(event: object) -> list[Any]:
    """The records of an SQS batch. Raises InputInvalid for any other event.

    Another service's batch is refused as well: its records have no ids, so that service would read
    a partial batch answer, which could not name them, as success.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise InputInvalid("event", "is not SQS's: it has no list of Records", hint=_CALLED_BY)
    if records and not any(isinstance(each, Mapping) and each.get("messageId") for each in records):
        raise InputInvalid("event", "is not SQS's: its Records have no messageId", hint=_CALLED_BY)
    return records


def draft_of_message(record: object, *, queue: str, handler_ref: str, now: datetime) -> Draft:
    """The draft of an SQS record: its body is the payload, a FIFO queue's group the concurrency
    key.

    Where the body is an on-failure event of Lambda's, the event that failed is the payload, and the
    failure is the first attempt.
    """
    message = _mapping("record", record)
    body, message_id = _text(message, "body"), _text(message, "messageId")
    source = str(message.get("eventSourceARN") or "")
    failure = _json_object(body)
    if is_failure_event(failure):
        return draft_of_failure(
            failure, queue=queue, handler_ref=handler_ref, now=now, source=source
        )
    attributes = _attributes(message.get("messageAttributes"))
    return Draft(
        queue=queue,
        handler_ref=handler_ref,
        payload=_utf8(body),
        options={
            "key": message_id,
            "headers": _headers(attributes, source),
            "content_type": JSON if _is_json(body) else TEXT,
            "concurrency_key": group_of(message),
        },
        own_headers=False,
        attempts=_dead_letter_attempts(attributes, now),
    )


def group_of(message: Mapping[str, Any]) -> str | None:
    """The group whose order a FIFO queue keeps.

    None in a standard queue, whose groups are for fairness and have no order.
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
    """The draft of a failed asynchronous invocation, from its on-failure event."""
    failure = _mapping("record", record)
    request = _mapping("requestContext", failure.get("requestContext"))
    if "requestPayload" not in failure:
        raise InputInvalid("requestPayload", "is missing")
    return Draft(
        queue=queue,
        handler_ref=handler_ref,
        payload=event_bytes(failure["requestPayload"]),
        options={
            "key": _text(request, "requestId"),
            "headers": _headers({}, source or str(request.get("functionArn") or "")),
            "content_type": JSON,
        },
        own_headers=False,
        attempts=(_failed_invocation(failure, now),),
    )


def is_failure_event(event: object) -> bool:
    """Whether an event is what Lambda sends to an on-failure destination."""
    return (
        isinstance(event, Mapping)
        and isinstance(event.get("requestContext"), Mapping)
        and "requestPayload" in event
    )


def _failed_invocation(failure: Mapping[str, Any], now: datetime) -> Attempt:
    payload = failure.get("responsePayload")
    if isinstance(payload, Mapping):
        error = reported_error(event_bytes(payload))
    else:  # the function did not run, or not to its end: throttled, or the event was too old
        request = failure.get("requestContext")
        condition = request.get("condition") if isinstance(request, Mapping) else None
        error = _lambda_error(str(condition), "it was not answered")
    return _first_attempt(error, _moment(failure.get("timestamp"), now))


def _dead_letter_attempts(attributes: Mapping[str, str], now: datetime) -> tuple[Attempt, ...]:
    """The failure that Lambda describes in the attributes of a dead-letter queue's message."""
    if not {"RequestID", "ErrorCode", "ErrorMessage"} <= set(attributes):
        return ()
    error = _lambda_error(attributes["ErrorCode"], attributes["ErrorMessage"])
    return (_first_attempt(error, now),)


def _lambda_error(kind: str, message: str) -> AttemptError:
    return reported_error(event_bytes({"errorType": f"lambda.{kind}", "errorMessage": message}))


def _first_attempt(error: AttemptError, at: datetime) -> Attempt:
    return Attempt(
        attempt_no=1, started_at=at, finished_at=at, outcome=Outcome.RETRYABLE_FAILURE, error=error
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
    """A message's text attributes; headers are text, so binary ones are left out."""
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


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
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


def event_bytes(event: object) -> bytes:
    """An event, or a part of one, as compact JSON.

    Raises InputInvalid for values that JSON or UTF-8 can't carry.
    """
    try:
        return encode_json(event)
    except ValueError as problem:
        raise InputInvalid("event", str(problem)) from None
