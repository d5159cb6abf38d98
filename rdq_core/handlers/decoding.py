"""Payloads as values of the type that a handler's annotation names.

The annotation is read once, when the handler is registered. A payload that doesn't decode raises
InputInvalid, which is permanent: it will never fit. The message says where the problem is and of
what kind, never the value, which may be private.
"""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rdq_core.domain.task import Task
from rdq_core.errors import ConfigInvalid, InputInvalid

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Decoder = Callable[[Task], Any]

_ANY_JSON: Final = (Any, object, None)


def decoder_for(path: str, annotation: Any) -> Decoder:
    """The decoder for a parameter of this annotation; None stands for a parameter without one.

    Raises ConfigInvalid, naming `path`, for a type that has no JSON form.
    """
    if annotation is bytes:
        return _bytes
    if annotation is str:
        return _text
    if annotation in (dict, list):
        return _json_of(annotation)
    if annotation in _ANY_JSON:
        return _json
    return _validated_by(path, annotation)


def _bytes(task: Task) -> bytes:
    return task.payload


def _text(task: Task) -> str:
    try:
        return read_text(task.payload)
    except ValueError as problem:
        raise InputInvalid("payload", str(problem), task_id=task.id) from None


def _json_of(kind: type) -> Decoder:
    def decode(task: Task) -> Any:
        value = _json(task)
        if not isinstance(value, kind):
            raise InputInvalid(
                "payload",
                f"is a JSON {type(value).__name__}, not a {kind.__name__}",
                task_id=task.id,
            )
        return value

    return decode


def _json(task: Task) -> Any:
    try:
        return read_json(task.payload)
    except ValueError as problem:
        raise InputInvalid("payload", str(problem), task_id=task.id) from None


def read_text(content: bytes) -> str:
    """Bytes as text. Raises ValueError, with the predicate of an error message, for others."""
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise ValueError(f"is not UTF-8 at byte {problem.start}") from None


def read_json(content: bytes) -> Any:
    """Bytes as JSON data. Raises ValueError, with the predicate of an error message, for anything
    else; NaN and numbers that no float can hold are refused too.
    """
    text = read_text(content)
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as problem:
        raise ValueError(f"is not JSON: {problem.msg} at character {problem.pos}") from None
    except (ValueError, RecursionError):
        raise ValueError(
            "is not JSON that can be read: NaN, an infinity, a huge number or nested too deeply"
        ) from None


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(digits)
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _validated_by(path: str, annotation: Any) -> Decoder:
    from pydantic import ValidationError

    adapter = adapter_of(path, annotation)
    name = name_of(annotation)

    def decode(task: Task) -> Any:
        _json(task)  # pydantic accepts NaN
        try:
            return adapter.validate_json(task.payload)
        except ValidationError as problem:
            raise InputInvalid("payload", misfit(problem, name), task_id=task.id) from None

    return decode


def adapter_of(path: str, annotation: Any) -> "TypeAdapter[Any]":
    """The pydantic adapter of an annotation.

    Raises ConfigInvalid, naming `path`, for a type without a JSON form.
    """
    from pydantic import PydanticUserError, TypeAdapter
    from pydantic_core import SchemaError

    try:
        return TypeAdapter(annotation)
    except (PydanticUserError, SchemaError, TypeError, NameError) as problem:
        raise ConfigInvalid(
            path, f"{name_of(annotation)} has no JSON form: {str(problem).splitlines()[0]}"
        ) from None


def name_of(annotation: Any) -> str:
    """The name of an annotation in messages."""
    return str(getattr(annotation, "__name__", annotation))


def misfit(problem: "ValidationError", name: str) -> str:
    """The message of a validation error: what doesn't fit and where, without the value."""
    problems = problem.errors(include_input=False, include_url=False)
    first = problems[0]
    place = ".".join(str(step) for step in first["loc"])[:100] or "the top"
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"does not fit {name}: {first['type']} at {place}{more}"
