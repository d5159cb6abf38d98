"""Python values as the bytes that a task stores: payloads and results.

Bytes stay as they are, text becomes UTF-8, and data becomes compact JSON. Values that JSON has no
form for are refused and never converted: NaN, infinities, sets, unknown objects. pydantic is loaded
only when a model, a dataclass, a date or the like is encoded.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

BINARY: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

_JSON_KINDS: Final = (dict, list, tuple, int, float, bool, type(None))
_PYDANTIC_KINDS: Final = (Decimal, datetime, date, time, timedelta, UUID, Enum)
_DEEPEST: Final = 100
"""How deep a value is searched for NaN and infinities: values may contain themselves."""


def encode(value: object) -> tuple[bytes, str]:
    """The bytes of a value and their content type.

    Raises ValueError, with the path inside the value, for a value that can't be encoded.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), BINARY
    if isinstance(value, str):
        return _utf8(value), TEXT
    return encode_json(value), JSON


def encode_json(value: object) -> bytes:
    """A value as compact JSON in UTF-8. Raises as `encode`."""
    try:
        text = json.dumps(
            value, default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":")
        )
    except RecursionError:
        raise ValueError("is nested too deeply for JSON") from None
    except ValueError as problem:
        raise ValueError(_explain(value, problem)) from None
    return _utf8(text)


def _plain(value: object) -> object:
    """JSON data for a value that the json module doesn't know, or ValueError."""
    if isinstance(value, _PYDANTIC_KINDS) or _is_record(value):
        import pydantic_core

        data = pydantic_core.to_jsonable_python(value, inf_nan_mode="constants")
        refuse_lost_numbers(value, data)
        return data
    raise ValueError(f"has a value of type {type(value).__name__}, which is not JSON")


def refuse_lost_numbers(value: object, data: object) -> None:
    """Raise ValueError where pydantic wrote null in `data` for NaN or an infinity in `value`.

    pydantic does so wherever the type allows null: for `Any`, and for an optional number.
    """
    path = next(_lost_numbers(value, data, "$", depth=0), None)
    if path is not None:
        raise ValueError(f"has NaN or an infinity at {path}")


def _lost_numbers(value: object, data: object, path: str, *, depth: int) -> Iterator[str]:
    if data is None:
        if isinstance(value, float) and not math.isfinite(value):
            yield path
    elif isinstance(data, (dict, list)) and depth < _DEEPEST:
        given = dict(_children(_fields(value)))
        for step, item in _children(data):
            if step in given:
                yield from _lost_numbers(given[step], item, f"{path}{step}", depth=depth + 1)


def _fields(value: object) -> object:
    """A dataclass or model as the mapping that pydantic writes; anything else as it is."""
    if not _is_record(value):
        return value
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value.model_dump(by_alias=True, warnings=False)  # type: ignore[attr-defined]


def _is_record(value: object) -> bool:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return True
    # A value can be a model only if pydantic is loaded.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError("has a lone surrogate, which UTF-8 cannot carry") from None


def _explain(value: object, problem: ValueError) -> str:
    """The problem's text, or the path of the first NaN or infinity if the value has one."""
    path = next(_non_finite(value, "$", depth=0), None)
    return str(problem) if path is None else f"has NaN or an infinity at {path}"


def _non_finite(value: object, path: str, *, depth: int) -> Iterator[str]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path
    elif depth < _DEEPEST and not isinstance(value, _JSON_KINDS) and _is_record(value):
        yield from _non_finite(_plain(value), path, depth=depth + 1)
    elif depth < _DEEPEST:
        for step, item in _children(value):
            yield from _non_finite(item, f"{path}{step}", depth=depth + 1)


def _children(value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{key}", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
