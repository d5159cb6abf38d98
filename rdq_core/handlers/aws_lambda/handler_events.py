"""The events of handler functions: sweepers write them, `lambda_handler` reads them. Version 1.

envelope    {"rdq": {"version", "task": {...}, "attempt_no", "fencing_token", "deadline",
                     "payload_json" | "payload_text" | "payload_base64"}}
hand-over   {"rdq": {"version", "claim": {"task_id", "token", "queue"}}}
SQS         {"Records": [{"messageId": the task's id, "body": the payload, ...}]}
raw         the payload itself; the attempt's data is in the ClientContext's `custom.rdq`
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rdq_core.domain import ids, limits
from rdq_core.domain.envelope import VERSION, from_envelope, to_envelope
from rdq_core.domain.lease import Claim
from rdq_core.domain.task import Task
from rdq_core.domain.times import format_time, parse_time, to_millis
from rdq_core.engine.context import TaskContext
from rdq_core.errors import InputInvalid
from rdq_core.handlers.decoding import read_json, read_text
from rdq_core.handlers.encoding import JSON, encode_json

NAME: Final = "rdq"
_NOT_SENT: Final = frozenset(
    {
        "envelope_version",
        "payload",
        "next_attempt_at",
        "completed_at",
        "failure",
        "result",
        "result_content_type",
        "attempts",
    }
)
"""Fields of a task that are elsewhere in the event, or that a running task doesn't have."""
_LONGEST_TRACEPARENT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One attempt's event: the whole task with its payload."""

    task: Task
    attempt_no: int
    fencing_token: int
    deadline: datetime


@dataclass(frozen=True, slots=True)
class HandOver:
    """A hand-over's event: the claim that the function is to adopt."""

    task_id: str
    queue: str
    token: str


def client_context(context: TaskContext) -> str:
    """The ClientContext of a raw delivery: base64 of JSON, under 1 KB (Lambda takes 3,583)."""
    custom = {
        "task_id": context.task.id,
        "idempotency_key": context.idempotency_key,
        "attempt_no": context.attempt_no,
        "fencing_token": context.fencing_token,
        "deadline": format_time(context.deadline),
    }
    traceparent = context.task.headers.get("traceparent", "")
    if 0 < len(traceparent) <= _LONGEST_TRACEPARENT:
        custom["traceparent"] = traceparent
    return base64.b64encode(encode_json({"custom": {NAME: custom}})).decode()


def sqs_event(context: TaskContext, body: str) -> bytes:
    """The payload as one SQS record. The message's id is the task's."""
    task = context.task
    record = {
        "messageId": task.id,
        "receiptHandle": f"rdq-{context.fencing_token}",
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": str(context.attempt_no),
            "SentTimestamp": str(to_millis(task.created_at)),
            "SenderId": "rdq",
            "ApproximateFirstReceiveTimestamp": str(to_millis(task.created_at)),
        },
        "messageAttributes": {},
        "md5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:::{task.queue}",
        "awsRegion": "",
    }
    return encode_json({"Records": [record]})


def envelope_event(context: TaskContext) -> bytes:
    """The task with its payload, for functions that know rdq."""
    task = context.task
    message = {
        "version": VERSION,
        "task": {name: value for name, value in to_envelope(task).items() if name not in _NOT_SENT},
        "attempt_no": context.attempt_no,
        "fencing_token": context.fencing_token,
        "deadline": format_time(context.deadline),
        **_payload(task),
    }
    return encode_json({NAME: message})


def hand_over_event(claim: Claim) -> bytes:
    """The event that hands a claim over, with nothing of its task."""
    reference = {"task_id": claim.task.id, "queue": claim.task.queue, "token": claim.token}
    return encode_json({NAME: {"version": VERSION, "claim": reference}})


def _payload(task: Task) -> dict[str, Any]:
    """The payload in readable form, and in base64 too if that form loses the exact bytes."""
    kind = task.payload_content_type.partition(";")[0].strip().lower()
    try:
        if kind == JSON or kind.endswith("+json"):
            value = read_json(task.payload)
            exact = {} if encode_json(value) == task.payload else _base64(task)
            return {"payload_json": value, **exact}
        return (
            {"payload_text": read_text(task.payload)} if kind.startswith("text/") else _base64(task)
        )
    except ValueError:
        return _base64(task)


def _base64(task: Task) -> dict[str, str]:
    return {"payload_base64": base64.b64encode(task.payload).decode()}


# -- in the handler function -----------------------------------------------------------------------


def read_event(event: object) -> Delivery | HandOver | None:
    """The delivery or hand-over in an event; None for an event that isn't rdq's.

    Raises InputInvalid, naming the field, for an event that this version can't read.
    """
    message = event.get(NAME) if isinstance(event, Mapping) else None
    if not isinstance(message, Mapping):
        return None
    if "claim" in message:
        return _hand_over(message)
    return _delivery(message) if "task" in message else None


def _delivery(message: Mapping[str, Any]) -> Delivery:
    task = message.get("task")
    if not isinstance(task, Mapping):
        raise InputInvalid("rdq.task", f"must be an object, not {type(task).__name__}")
    return Delivery(
        task=from_envelope(
            {**task, "envelope_version": message.get("version"), "payload": _payload_in(message)}
        ),
        attempt_no=_whole(message, "attempt_no", least=1),
        fencing_token=_whole(message, "fencing_token", least=0),
        deadline=parse_time(message.get("deadline"), "rdq.deadline"),
    )


def _hand_over(message: Mapping[str, Any]) -> HandOver:
    claim = message.get("claim")
    if not isinstance(claim, Mapping):
        raise InputInvalid("rdq.claim", f"must be an object, not {type(claim).__name__}")
    token = claim.get("token")
    if not isinstance(token, str):
        raise InputInvalid("rdq.claim.token", f"must be text, not {type(token).__name__}")
    return HandOver(
        ids.check_id(claim.get("task_id")), limits.check_name("queue", claim.get("queue")), token
    )


def _whole(message: Mapping[str, Any], name: str, *, least: int) -> int:
    value = message.get(name)
    if type(value) is not int or value < least:
        raise InputInvalid(f"rdq.{name}", f"must be a whole number of {least} or more")
    return value


def _payload_in(message: Mapping[str, Any]) -> Any:
    """The payload in base64, from whichever form it has."""
    if "payload_base64" in message:
        return message["payload_base64"]
    text, data = message.get("payload_text"), message.get("payload_json")
    try:
        content = text.encode() if isinstance(text, str) else encode_json(data)
    except ValueError as problem:
        raise InputInvalid("rdq.payload", str(problem)) from None
    return base64.b64encode(content).decode()
