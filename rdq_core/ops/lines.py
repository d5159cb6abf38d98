"""Files of many tasks, one a line: bare payloads, or task objects.

A line that can't be a task is told apart and not in the way of the others. Lines are counted from
1.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, BinaryIO, Final, NoReturn

from rdq_core.domain import ids
from rdq_core.domain.envelope import KNOWN_FIELDS, draft_from_envelope
from rdq_core.domain.limits import MAX_PAYLOAD_BYTES, MIB
from rdq_core.domain.task import DEFAULT_CONTENT_TYPE
from rdq_core.domain.times import parse_time
from rdq_core.domain.units import parse_duration
from rdq_core.engine.ports import Clock
from rdq_core.engine.submit import Draft
from rdq_core.errors import InputInvalid, RdqError
from rdq_core.ops.submitting import Line

_MOST_PAYLOAD_LINE: Final = MAX_PAYLOAD_BYTES
_MOST_TASK_LINE: Final = 4 * MIB
_PAYLOAD_FORMS: Final = ("payload", "payload_text", "payload_json")
_OWN_FIELDS: Final = frozenset({"key", "delay", "run_at", *_PAYLOAD_FORMS})
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_NEEDED: Final = ("queue", "handler_ref")
_MEANT: Final = {"handler": "handler_ref", "content_type": "payload_content_type"}
_NEAR: Final = 0.78
_ANY_ID: Final = ids.encode_id(0)


def payload_lines(stream: BinaryIO, template: Draft) -> Iterator[Line]:
    """A draft for each line, which is its payload byte for byte, without the line feed. An empty
    line is refused.
    """
    for number, line in _lines(stream, _MOST_PAYLOAD_LINE):
        if isinstance(line, RdqError):
            yield Line(number, line)
        elif not line:
            yield Line(number, InputInvalid("payload", "is empty: a line is one payload"))
        else:
            yield Line(number, replace(template, payload=line))


def task_lines(stream: BinaryIO, template: Draft, *, clock: Clock) -> Iterator[Line]:
    """A draft for each line, which is a task object; what it leaves out comes from the template."""
    reader = _TaskLines(template, clock)
    for number, line in _lines(stream, _MOST_TASK_LINE):
        try:
            yield Line(number, reader.draft(line))
        except InputInvalid as refused:
            yield Line(number, refused)


@dataclass(frozen=True, slots=True)
class _TaskLines:
    """Task objects as drafts. Beside the envelope's fields they may have `key`, `run_at` or
    `delay`, and `payload_text` or `payload_json` instead of `payload`, which is base64.
    """

    template: Draft
    clock: Clock

    def draft(self, line: bytes | RdqError) -> Draft:
        if isinstance(line, RdqError):
            raise line
        data = _object(line)
        _check_spelling(data)
        payload, content_type = _payload(data)
        now = self.clock.now()
        run_at = _run_at(data, now)
        task = draft_from_envelope(self._envelope(data, content_type), task_id=_ANY_ID, now=now)
        return Draft(
            queue=task.queue,
            handler_ref=task.handler_ref,
            payload=payload,
            content_type=task.payload_content_type,
            id=None if data.get("id") is None else ids.check_id(data["id"]),
            key=data.get("key"),
            headers={**self.template.headers, **task.headers},
            own_headers=False,
            handler_version=task.handler_version,
            run_at=run_at or task.next_attempt_at or self.template.run_at,
            concurrency_key=task.concurrency_key,
            target=task.target,
            requested_by=task.requested_by,
            unknown=task.unknown,
        )

    def _envelope(self, data: Mapping[str, Any], content_type: str | None) -> dict[str, Any]:
        template = self.template
        chosen = None if template.content_type == DEFAULT_CONTENT_TYPE else template.content_type
        defaults = {
            "queue": template.queue or None,
            "handler_ref": template.handler_ref or None,
            "handler_version": template.handler_version,
            "concurrency_key": template.concurrency_key,
            "target": template.target,
            "requested_by": template.requested_by,
            "payload_content_type": chosen or content_type,
        }
        present = {
            name: value
            for name, value in data.items()
            if name not in _OWN_FIELDS and value is not None
        }
        whole = {**defaults, **present}
        for name in _NEEDED:
            if whole[name] is None:
                raise InputInvalid(name, "is missing")
        return whole


def _lines(stream: BinaryIO, most: int) -> Iterator[tuple[int, bytes | RdqError]]:
    number = 0
    while line := stream.readline(most + 1):
        number += 1
        if line.endswith(b"\n") or len(line) <= most:
            yield number, line.removesuffix(b"\n")
            continue
        size = len(line)
        while line and not line.endswith(b"\n"):
            line = stream.readline(most)
            size += len(line.removesuffix(b"\n"))
        yield number, InputInvalid("payload", f"is {size} bytes long; at most {most} are allowed")


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        data = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as problem:
        place = (
            f": {problem.msg} at byte {problem.pos}"
            if isinstance(problem, json.JSONDecodeError)
            else ""
        )
        raise InputInvalid("task", f"is not JSON{place}") from None
    if not isinstance(data, dict):
        raise InputInvalid("task", f"must be a JSON object, not {type(data).__name__}")
    key = data.get("key")
    if key is not None and not isinstance(key, str):
        raise InputInvalid("key", f"must be text, not {type(key).__name__}")
    return data


def _check_spelling(data: Mapping[str, Any]) -> None:
    """A field that nobody knows may be a newer writer's, and is kept. One that is nearly ours is a
    slip: kept in silence, it would cost the task its delay or its key.
    """
    from difflib import get_close_matches

    known = KNOWN_FIELDS | _OWN_FIELDS
    for name in data.keys() - known:
        near = (
            [_MEANT[name]]
            if name in _MEANT
            else get_close_matches(name.lower(), sorted(known), n=1, cutoff=_NEAR)
        )
        if near:
            raise InputInvalid(name, f"is no field of a task; did you mean {near[0]}?")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _payload(data: Mapping[str, Any]) -> tuple[bytes, str | None]:
    """The payload, whatever its form, and its content type where the form says it."""
    given = [form for form in _PAYLOAD_FORMS if form in data]
    if len(given) > 1:
        raise InputInvalid(given[1], f"excludes {given[0]}: give one of them")
    match given:
        case ["payload_text"]:
            if not isinstance(data["payload_text"], str):
                raise InputInvalid(
                    "payload_text", f"must be text, not {type(data['payload_text']).__name__}"
                )
            return _utf8("payload_text", data["payload_text"]), _TEXT
        case ["payload_json"]:
            return _utf8("payload_json", _as_json(data["payload_json"])), _JSON
        case []:
            raise InputInvalid("payload", f"is missing: give one of {', '.join(_PAYLOAD_FORMS)}")
    return _decoded(data["payload"]), None


def _decoded(payload: object) -> bytes:
    if payload is None:
        return b""
    try:
        return base64.b64decode(payload, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputInvalid(
            "payload", "is not base64; encode it, or give payload_text or payload_json"
        ) from None


def _as_json(data: object) -> str:
    try:
        return json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        raise InputInvalid(
            "payload_json", "has a number that is too large for JSON's readers"
        ) from None


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputInvalid(field, "has a lone surrogate, which UTF-8 cannot carry") from None


def _run_at(data: Mapping[str, Any], now: datetime) -> datetime | None:
    delay, run_at = data.get("delay"), data.get("run_at")
    if delay is None:
        return None if run_at is None else parse_time(run_at, "run_at")
    if run_at is not None:
        raise InputInvalid("delay", "excludes run_at: give one of them")
    try:
        return now + parse_duration(delay)
    except ValueError as problem:
        raise InputInvalid("delay", str(problem)) from None
