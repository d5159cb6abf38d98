"""The wire form of a task, version 1: JSON in snake case, times RFC 3339, bytes as base64.

Fields that a newer writer added, at the top or inside an attempt, survive a read and a write
unchanged.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from rdq_core.domain import ids, limits
from rdq_core.domain.attempt import Attempt, AttemptError, Code, Outcome
from rdq_core.domain.task import DEFAULT_CONTENT_TYPE, Failure, Status, Task
from rdq_core.domain.times import format_time, parse_time
from rdq_core.errors import InputInvalid

VERSION: Final = 1
_MOST_PRINTED: Final = 1_000_000
E = TypeVar("E")

_SUBMITTED_FIELDS: Final = (
    "id",
    "queue",
    "handler_ref",
    "handler_version",
    "payload",
    "payload_content_type",
    "headers",
    "concurrency_key",
    "target",
    "requested_by",
)
_LIFECYCLE_FIELDS: Final = (
    "status",
    "attempt_count",
    "redrive_count",
    "next_attempt_at",
    "lease_expires_at",
    "created_at",
    "completed_at",
    "failure",
    "result",
    "result_content_type",
    "attempts",
)
# What a store keeps beside the task, and what rdq's own output may contain: never an unknown field.
_STORE_FIELDS: Final = (
    "envelope_version",
    "claim_token",
    "fencing_token",
    "payload_size",
    "payload_sha256",
)
KNOWN_FIELDS: Final = frozenset((*_SUBMITTED_FIELDS, *_LIFECYCLE_FIELDS, *_STORE_FIELDS))
_ATTEMPT_KNOWN: Final = frozenset(
    ("attempt_no", "started_at", "finished_at", "outcome", "error", "worker", "fencing_token")
)
_ERROR_KNOWN: Final = frozenset(("type", "message", "code", "detail", "stack"))


def to_envelope(task: Task) -> dict[str, Any]:
    """The task as plain JSON data, with the unknown fields that it came with."""
    return {
        **task.unknown,
        "envelope_version": VERSION,
        "id": task.id,
        "queue": task.queue,
        "handler_ref": task.handler_ref,
        "handler_version": task.handler_version,
        "payload": _encode(task.payload),
        "payload_content_type": task.payload_content_type,
        "headers": dict(task.headers),
        "status": str(task.status),
        "attempt_count": task.attempt_count,
        "redrive_count": task.redrive_count,
        "next_attempt_at": _time(task.next_attempt_at),
        "lease_expires_at": _time(task.lease_expires_at),
        "created_at": format_time(task.created_at),
        "completed_at": _time(task.completed_at),
        "failure": None if task.failure is None else failure_to_plain(task.failure),
        "concurrency_key": task.concurrency_key,
        "target": task.target,
        "requested_by": task.requested_by,
        "result": _encode(task.result),
        "result_content_type": task.result_content_type,
        "attempts": [attempt_to_plain(attempt) for attempt in task.attempts],
    }


def failure_to_plain(failure: Failure) -> dict[str, Any]:
    """A failure as plain JSON data."""
    return {"code": failure.code, "type": failure.type, "message": failure.message}


def attempt_to_plain(attempt: Attempt) -> dict[str, Any]:
    """An attempt as plain JSON data, unknown fields included."""
    return {
        **attempt.unknown,
        "attempt_no": attempt.attempt_no,
        "started_at": format_time(attempt.started_at),
        "finished_at": _time(attempt.finished_at),
        "outcome": str(attempt.outcome),
        "error": None if attempt.error is None else _error_to_plain(attempt.error),
        "worker": attempt.worker,
        "fencing_token": attempt.fencing_token,
    }


def _error_to_plain(error: AttemptError) -> dict[str, Any]:
    return {
        **error.unknown,
        "type": error.type,
        "message": error.message,
        "code": str(error.code),
        "detail": error.detail,
        "stack": error.stack,
    }


def check_version(data: Mapping[str, Any]) -> None:
    """Raises InputInvalid for any version but 1 to our own."""
    version = data.get("envelope_version", VERSION)
    if type(version) is not int or not 1 <= version <= VERSION:
        shown = (
            version
            if type(version) is int and abs(version) < _MOST_PRINTED
            else f"a {type(version).__name__}"
        )
        raise InputInvalid(
            "envelope_version", f"{shown} cannot be read; this rdq reads 1 to {VERSION}"
        )


def from_envelope(data: Mapping[str, Any]) -> Task:
    """The task in an envelope, lifecycle included. Raises InputInvalid naming the wrong field."""
    fields = _Fields(data)
    return Task(
        **_submitted_part(fields, task_id=ids.check_id(data.get("id"))),
        status=fields.one_of("status", Status),
        attempt_count=fields.count("attempt_count"),
        redrive_count=fields.count("redrive_count"),
        next_attempt_at=fields.time("next_attempt_at"),
        lease_expires_at=fields.time("lease_expires_at"),
        created_at=parse_time(data.get("created_at"), "created_at"),
        completed_at=fields.time("completed_at"),
        failure=_failure(fields),
        result=fields.encoded("result"),
        result_content_type=fields.text("result_content_type"),
        attempts=tuple(attempt_from_plain(item) for item in fields.items("attempts")),
    )


def _submitted_part(fields: "_Fields", *, task_id: str) -> dict[str, Any]:
    data = fields.data
    check_version(data)
    return {
        "id": task_id,
        "queue": limits.check_name("queue", data.get("queue")),
        "handler_ref": limits.check_name("handler_ref", data.get("handler_ref")),
        "handler_version": fields.text("handler_version"),
        "payload": fields.encoded("payload") or b"",
        "payload_content_type": fields.text("payload_content_type") or DEFAULT_CONTENT_TYPE,
        "headers": limits.check_headers(
            {} if data.get("headers") is None else data["headers"], own=False
        ),
        "concurrency_key": fields.text("concurrency_key"),
        "target": fields.text("target"),
        "requested_by": fields.text("requested_by"),
        "unknown": unknown_of(data, KNOWN_FIELDS),
    }


def attempt_from_plain(data: object) -> Attempt:
    """An attempt from plain JSON data. Raises InputInvalid naming the field that is wrong."""
    fields = _Fields(_mapping(data, "attempts"), prefix="attempts.")
    error = fields.data.get("error")
    return Attempt(
        attempt_no=fields.count("attempt_no"),
        started_at=parse_time(fields.data.get("started_at"), "attempts.started_at"),
        finished_at=fields.time("finished_at"),
        outcome=fields.one_of("outcome", Outcome),
        error=None
        if error is None
        else _error(_Fields(_mapping(error, "attempts.error"), prefix="attempts.error.")),
        worker=fields.text("worker"),
        fencing_token=fields.count("fencing_token")
        if fields.data.get("fencing_token") is not None
        else None,
        unknown=unknown_of(fields.data, _ATTEMPT_KNOWN),
    )


def _error(fields: "_Fields") -> AttemptError:
    return AttemptError(
        type=fields.text("type") or "unknown",
        message=fields.text("message"),
        code=fields.text("code") or Code.FAILED,
        detail=fields.data.get("detail"),
        stack=fields.text("stack"),
        unknown=unknown_of(fields.data, _ERROR_KNOWN),
    )


def _failure(fields: "_Fields") -> Failure | None:
    data = fields.data.get("failure")
    if data is None:
        return None
    inner = _Fields(_mapping(data, "failure"), prefix="failure.")
    return Failure(inner.text("code") or Code.FAILED, inner.text("type"), inner.text("message"))


def unknown_of(data: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """What an envelope carries that this version does not know."""
    return {name: value for name, value in data.items() if name not in known}


class _Fields:
    """Typed access to untyped data. Each error names the field."""

    def __init__(self, data: Mapping[str, Any], *, prefix: str = "") -> None:
        self.data = data
        self._prefix = prefix

    def text(self, name: str) -> str | None:
        value: str | None = self._get(name, str, "text")
        return value

    def encoded(self, name: str) -> bytes | None:
        text = self.text(name)
        try:
            return None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise InputInvalid(self._prefix + name, "is not base64") from None

    def time(self, name: str) -> datetime | None:
        value = self.data.get(name)
        return None if value is None else parse_time(value, self._prefix + name)

    def count(self, name: str) -> int:
        value = self.data.get(name, 0)
        if type(value) is not int or value < 0:
            raise InputInvalid(self._prefix + name, "is not a whole number of 0 or more")
        return value

    def one_of(self, name: str, kind: Callable[[Any], E]) -> E:
        try:
            return kind(self.data.get(name))
        except (ValueError, RecursionError):  # an enum puts the value into its own error
            raise InputInvalid(
                self._prefix + name, "is not one of the values that this rdq knows"
            ) from None

    def items(self, name: str) -> Sequence[object]:
        value = self._get(name, list, "a list")
        return value or ()

    def _get(self, name: str, kind: type, word: str) -> Any:
        value = self.data.get(name)
        if value is not None and not isinstance(value, kind):
            raise InputInvalid(self._prefix + name, f"must be {word}, not {type(value).__name__}")
        return value


def _mapping(data: object, field: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise InputInvalid(field, f"must be an object, not {type(data).__name__}")
    return data


def _encode(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)
