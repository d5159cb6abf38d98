"""Files of many tasks, one a line: bare payloads, or task objects in JSON.

A line that isn't a task is reported by its number, counted from 1, and doesn't stop the others.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO, Final, NoReturn, cast

from rdq_core.domain import limits
from rdq_core.domain.envelope import KNOWN_FIELDS, check_version, unknown_of
from rdq_core.domain.times import parse_time
from rdq_core.engine.submit import SUBMIT_OPTIONS, Draft, SubmitOptions
from rdq_core.errors import InputInvalid, RdqError
from rdq_core.ops.submitting import Line

_MOST_PAYLOAD_LINE: Final = limits.MAX_PAYLOAD_BYTES
_MOST_TASK_LINE: Final = 4 * limits.MIB
_PAYLOAD_FORMS: Final = ("payload", "payload_text", "payload_json")
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_TIMES: Final = frozenset({"run_at", "delay"})

FIELD_OF_OPTION: Final[Mapping[str, str]] = {
    **{option: option for option in SUBMIT_OPTIONS},
    "content_type": "payload_content_type",
}
"""The field of a task object for each option of a submit. The content type has the name that it has
in an envelope, as `rdq task get` prints it.
"""
_KNOWN: Final = KNOWN_FIELDS | {*_PAYLOAD_FORMS, *FIELD_OF_OPTION.values()}
_SLIPS: Final = {"handler": "handler_ref", "content_type": "payload_content_type"}
_CLOSE_ENOUGH: Final = 0.78


def payload_lines(stream: BinaryIO, template: Draft) -> Iterator[Line]:
    """A draft for each line: the template with the line as its payload, without the line feed.

    An empty line is refused.
    """
    for number, line in _lines(stream, _MOST_PAYLOAD_LINE):
        if isinstance(line, RdqError):
            yield Line(number, line)
        elif not line:
            yield Line(number, InputInvalid("payload", "is empty: a line is one payload"))
        else:
            yield Line(number, replace(template, payload=line))


def task_lines(stream: BinaryIO, template: Draft) -> Iterator[Line]:
    """A draft for each line, which is a task object; the template has what the line leaves out."""
    for number, line in _lines(stream, _MOST_TASK_LINE):
        try:
            if isinstance(line, RdqError):
                raise line
            yield Line(number, draft_of_object(_parsed(line), template))
        except InputInvalid as refusal:
            yield Line(number, refusal)


def draft_of_object(data: object, template: Draft) -> Draft:
    """The draft of a task object: queue, handler_ref, a payload and the options of a submit.

    The payload is `payload` in base64, `payload_text` or `payload_json`. An envelope, such as
    `rdq task get` prints, is a task object too: its `next_attempt_at` is when the task is due, its
    other lifecycle fields are ignored, and unknown fields are carried along. Raises InputInvalid
    naming a field that is missing, misspelt or of the wrong type.
    """
    if not isinstance(data, Mapping):
        raise InputInvalid("task", f"must be a JSON object, not {type(data).__name__}")
    _check_spelling(data)
    check_version(data)
    payload, content_type = _payload(data)
    return Draft(
        queue=_required("queue", data, template.queue),
        handler_ref=_required("handler_ref", data, template.handler_ref),
        payload=payload,
        options=_options(data, template.options, content_type),
        own_headers=False,
        unknown={
            name: value for name, value in unknown_of(data, _KNOWN).items() if value is not None
        },
    )


def _required(name: str, data: Mapping[str, Any], default: str) -> str:
    value: str = default if data.get(name) is None else data[name]
    if value == "" and data.get(name) is None:
        raise InputInvalid(name, "is missing")
    return value


def _options(
    data: Mapping[str, Any], template: SubmitOptions, content_type: str | None
) -> SubmitOptions:
    """The object's options over the template's; headers are merged, name by name.

    Values keep the JSON type that they have: the submit checks them, as it does any caller's.
    """
    given = {
        option: data[field]
        for option, field in FIELD_OF_OPTION.items()
        if data.get(field) is not None
    }
    if data.get("run_at") is not None:
        given["run_at"] = parse_time(data["run_at"], "run_at")
    elif data.get("next_attempt_at") is not None and "delay" not in given:
        given["run_at"] = parse_time(data["next_attempt_at"], "next_attempt_at")
    if "headers" in given:
        headers = limits.check_headers(given["headers"], own=False)
        given["headers"] = {**(template.get("headers") or {}), **headers}
    if "content_type" in given:
        limits.check_text("payload_content_type", given["content_type"])
    inherited = {
        option: value
        for option, value in template.items()
        if value is not None and not (option in _TIMES and _TIMES & given.keys())
    }
    return cast("SubmitOptions", {"content_type": content_type, **inherited, **given})


def _lines(stream: BinaryIO, most: int) -> Iterator[tuple[int, bytes | RdqError]]:
    number = 0
    while line := stream.readline(most + 1):
        number += 1
        if line.endswith(b"\n") or len(line) <= most:
            yield number, line.removesuffix(b"\n")
            continue
        # Read to the line's end in pieces, so that memory stays bounded.
        size = len(line)
        while line and not line.endswith(b"\n"):
            line = stream.readline(most)
            size += len(line.removesuffix(b"\n"))
        yield number, InputInvalid("payload", f"is {size} bytes long; at most {most} are allowed")


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:
        place = (
            f": {problem.msg} at byte {problem.pos}"
            if isinstance(problem, json.JSONDecodeError)
            else ""
        )
        raise InputInvalid("task", f"is not JSON{place}") from None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


def _check_spelling(data: Mapping[str, Any]) -> None:
    """Refuse an unknown field whose name is nearly a known one.

    Other unknown fields may be a newer writer's and are kept. A misspelt one would be kept as well,
    and the task would silently lose its delay or its key.
    """
    from difflib import get_close_matches

    for name in data.keys() - _KNOWN:
        near = (
            [_SLIPS[name]]
            if name in _SLIPS
            else get_close_matches(name.lower(), sorted(_KNOWN), n=1, cutoff=_CLOSE_ENOUGH)
        )
        if near:
            raise InputInvalid(name, f"is not a field of a task; did you mean {near[0]}?")


def _payload(data: Mapping[str, Any]) -> tuple[bytes, str | None]:
    """The payload from whichever form it has, and the content type that the form implies."""
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
    return _from_base64(data["payload"]), None


def _from_base64(payload: object) -> bytes:
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
    except (ValueError, RecursionError):
        raise InputInvalid(
            "payload_json", "has a number that no JSON reader accepts, or is nested too deeply"
        ) from None


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputInvalid(field, "has a lone surrogate, which UTF-8 cannot carry") from None
