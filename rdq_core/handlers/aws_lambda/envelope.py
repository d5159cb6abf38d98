"""The events that functions get from rdq, as both sides write and read them. Version 1.

envelope    {"rdq": {"version", "task": {...}, "attempt_no", "fencing_token", "deadline", "payload_json" | ...}}
hand-over   {"rdq": {"version", "claim": {"task_id", "token", "queue"}}}
SQS         {"Records": [{"messageId": the task's id, "body": the payload, ...}]}
raw         the payload itself; all else is in the ClientContext's `custom.rdq`
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
_NOT_TOLD: Final = frozenset(
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
"""What an envelope says elsewhere, or what a task that runs doesn't have."""
_LONGEST_TRACEPARENT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A task that came whole, for one attempt."""

    task: Task
    attempt_no: int
    fencing_token: int
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Reference:
    """A claim that is handed over."""

    task_id: str
    queue: str
    token: str


def client_context(context: TaskContext) -> str:
    """What rides beside a raw payload, as Lambda wants it: base64 of JSON, under 1 KB."""
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
    told = {
        "version": VERSION,
        "task": {name: value for name, value in to_envelope(task).items() if name not in _NOT_TOLD},
        "attempt_no": context.attempt_no,
        "fencing_token": context.fencing_token,
        "deadline": format_time(context.deadline),
        **_payload(task),
    }
    return encode_json({NAME: told})


def hand_over_event(claim: Claim) -> bytes:
    """A claim's reference, and nothing of its task."""
    told = {"task_id": claim.task.id, "queue": claim.task.queue, "token": claim.token}
    return encode_json({NAME: {"version": VERSION, "claim": told}})


def _payload(task: Task) -> dict[str, Any]:
    """The payload in the form that its reader would like; in base64 as well, where that form isn't
    byte for byte.
    """
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


# -- on the other side -----------------------------------------------------------------------------


def told_by(event: object) -> Mapping[str, Any] | None:
    """What rdq says in an event; None for an event that isn't rdq's."""
    told = event.get(NAME) if isinstance(event, Mapping) else None
    return told if isinstance(told, Mapping) and ("task" in told or "claim" in told) else None


def delivery_in(told: Mapping[str, Any]) -> Delivery:
    """What an envelope carries. InputInvalid, naming the field, for one that this version can't
    read.
    """
    task = told.get("task")
    if not isinstance(task, Mapping):
        raise InputInvalid("rdq.task", f"must be an object, not {type(task).__name__}")
    return Delivery(
        task=from_envelope(
            {**task, "envelope_version": told.get("version"), "payload": _payload_in(told)}
        ),
        attempt_no=_whole(told, "attempt_no", least=1),
        fencing_token=_whole(told, "fencing_token", least=0),
        deadline=parse_time(told.get("deadline"), "rdq.deadline"),
    )


def reference_in(told: Mapping[str, Any]) -> Reference:
    """The claim that is handed over. InputInvalid, naming the field, for what is none."""
    claim = told.get("claim")
    if not isinstance(claim, Mapping):
        raise InputInvalid("rdq.claim", f"must be an object, not {type(claim).__name__}")
    token = claim.get("token")
    if not isinstance(token, str):
        raise InputInvalid("rdq.claim.token", f"must be text, not {type(token).__name__}")
    return Reference(
        ids.check_id(claim.get("task_id")), limits.check_name("queue", claim.get("queue")), token
    )


def _whole(told: Mapping[str, Any], name: str, *, least: int) -> int:
    value = told.get(name)
    if type(value) is not int or value < least:
        raise InputInvalid(f"rdq.{name}", f"must be a whole number of {least} or more")
    return value


def _payload_in(told: Mapping[str, Any]) -> Any:
    """The payload in base64, whatever form it has come in."""
    if "payload_base64" in told:
        return told["payload_base64"]
    text, data = told.get("payload_text"), told.get("payload_json")
    try:
        content = text.encode() if isinstance(text, str) else encode_json(data)
    except ValueError as problem:
        raise InputInvalid("rdq.payload", str(problem)) from None
    return base64.b64encode(content).decode()
