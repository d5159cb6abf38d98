"""Payloads as the values that a handler's annotation asks for.

The annotation is read once, when the handler is registered. What doesn't decode is InputInvalid: the payload will never
fit, so trying again is useless. Refusals tell where and what kind of thing is wrong, never the value: it may be
private.
"""

import json
from collections.abc import Callable
from typing import Any, Final, NoReturn

from rdq_core.domain.task import Task
from rdq_core.errors import InputInvalid

Decoder = Callable[[Task], Any]

_FREE: Final = (Any, dict, list, object, None)


def decoder_for(annotation: Any) -> Decoder:
    """How to decode payloads for a parameter of this annotation; None stands for a parameter without one."""
    if annotation is bytes:
        return _bytes
    if annotation is str:
        return _text
    if annotation in _FREE:
        return _json_of(annotation if annotation in (dict, list) else None)
    return _validated_by(annotation)


def _bytes(task: Task) -> bytes:
    return task.payload


def _text(task: Task) -> str:
    try:
        return task.payload.decode()
    except UnicodeDecodeError as problem:
        raise InputInvalid("payload", f"is not UTF-8 at byte {problem.start}", task_id=task.id) from None


def _json_of(kind: type | None) -> Decoder:
    def decode(task: Task) -> Any:
        value = _json(task)
        if kind is not None and not isinstance(value, kind):
            raise InputInvalid("payload", f"is a JSON {type(value).__name__}, not a {kind.__name__}", task_id=task.id)
        return value

    return decode


def _json(task: Task) -> Any:
    text = _text(task)
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as problem:
        raise InputInvalid("payload", f"is not JSON: {problem.msg} at byte {problem.pos}", task_id=task.id) from None
    except (ValueError, RecursionError):
        raise InputInvalid(
            "payload",
            "is not JSON that can be read: NaN, an infinity, a huge number or nested too deeply",
            task_id=task.id,
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _validated_by(annotation: Any) -> Decoder:
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    name = getattr(annotation, "__name__", str(annotation))

    def decode(task: Task) -> Any:
        _text(task)
        try:
            return adapter.validate_json(task.payload)
        except ValidationError as problem:
            raise InputInvalid(
                "payload", _describe(problem.errors(include_input=False), name), task_id=task.id
            ) from None

    return decode


def _describe(problems: list[Any], name: str) -> str:
    first = problems[0]
    place = ".".join(str(step) for step in first["loc"])[:100] or "the top"
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"does not fit {name}: {first['type']} at {place}{more}"
