"""The events that functions get from rdq, as both sides write and read them. Version 1.

envelope    {"rdq": {"version", "task": {...}, "attempt_no", "fencing_token", "deadline", "payload_json" | ...}}
hand-over   {"rdq": {"version", "claim": {"task_id", "token", "queue"}}}
SQS         {"Records": [{"messageId": the task's id, "body": the payload, ...}]}
raw         the payload itself; all else is in the ClientContext's `custom.rdq`
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from rdq_core.domain.envelope import VERSION
from rdq_core.domain.lease import Claim
from rdq_core.domain.task import Task
from rdq_core.domain.times import format_time, parse_time, to_millis
from rdq_core.engine.context import TaskContext
from rdq_core.errors import InputInvalid
from rdq_core.handlers.decoding import read_json, read_text
from rdq_core.handlers.encoding import JSON, encode_json

NAME: Final = "rdq"
_LONGEST_TRACEPARENT: Final = 256


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
        "task": {
            "id": task.id,
            "queue": task.queue,
            "handler_ref": task.handler_ref,
            "handler_version": task.handler_version,
            "payload_content_type": task.payload_content_type,
            "headers": dict(task.headers),
            "created_at": format_time(task.created_at),
            "attempt_count": task.attempt_count,
            "redrive_count": task.redrive_count,
            "concurrency_key": task.concurrency_key,
            "target": task.target,
            "requested_by": task.requested_by,
        },
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
    """The payload in the form that its reader would like; in base64 as well, where that form isn't byte for byte."""
    kind = task.payload_content_type.partition(";")[0].strip().lower()
    try:
        if kind == JSON or kind.endswith("+json"):
            value = read_json(task.payload)
            exact = {} if encode_json(value) == task.payload else _base64(task)
            return {"payload_json": value, **exact}
        return {"payload_text": read_text(task.payload)} if kind.startswith("text/") else _base64(task)
    except ValueError:
        return _base64(task)


def _base64(task: Task) -> dict[str, str]:
    return {"payload_base64": base64.b64encode(task.payload).decode()}


# -- on the other side -------------------------------------------------------------------------------------------------


def told_by(event: object) -> Mapping[str, Any] | None:
    """What rdq says in an event; None for an event that isn't rdq's."""
    told = event.get(NAME) if isinstance(event, Mapping) else None
    return told if isinstance(told, Mapping) and ("task" in told or "claim" in told) else None


def task_in(told: Mapping[str, Any]) -> Task:
    """The task that an envelope carries. InputInvalid for one that this version can't read."""
    version, task = told.get("version"), told.get("task")
    if not isinstance(version, int) or not 1 <= version <= VERSION or not isinstance(task, Mapping):
        raise InputInvalid("rdq.version", f"is an envelope that this rdq can't read; it reads 1 to {VERSION}")
    names = ("handler_version", "payload_content_type", "attempt_count", "redrive_count", "headers")
    more = ("concurrency_key", "target", "requested_by")
    return Task(
        id=str(task.get("id")),
        queue=str(task.get("queue")),
        handler_ref=str(task.get("handler_ref")),
        created_at=parse_time(task.get("created_at"), "rdq.task.created_at"),
        payload=_payload_in(told),
        **{name: task[name] for name in (*names, *more) if task.get(name) is not None},
    )


def _payload_in(told: Mapping[str, Any]) -> bytes:
    if "payload_base64" in told:
        return base64.b64decode(told["payload_base64"])
    if "payload_text" in told:
        return str(told["payload_text"]).encode()
    return json.dumps(told.get("payload_json"), ensure_ascii=False, separators=(",", ":")).encode()
