"""What a task carries of its call and its result, in the row or in an item of its own, compressed
where that helps.
"""

import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.task import DEFAULT_CONTENT_TYPE, Task
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.values import Item, Reader, binary, compact_json, seconds_up, text

_WRITE_UNIT: Final = 1024
_KEY_BYTES: Final = 128
"""About what an item's keys and names take beside its content."""

_META: Final = {
    "content_type": "payload_content_type",
    "headers": "headers",
    "target": "target",
    "requested_by": "requested_by",
    "unknown": "unknown",
}
"""What a body's meta data calls the fields of a task."""


def meta_of(task: Task) -> dict[str, Any]:
    """What a task carries beside its payload, without what is empty or usual."""
    meta = {
        "content_type": None
        if task.payload_content_type == DEFAULT_CONTENT_TYPE
        else task.payload_content_type,
        "headers": dict(task.headers),
        "target": task.target,
        "requested_by": task.requested_by,
        "unknown": dict(task.unknown),
    }
    return {name: value for name, value in meta.items() if value not in (None, {})}


def inline_body(task: Task) -> Item:
    """The payload and all that goes with it, as attributes of the row."""
    meta = meta_of(task)
    content_type = meta.pop("content_type", None)
    item: Item = {}
    if task.payload:
        item[Attr.PAYLOAD] = binary(task.payload)
    if content_type:
        item[Attr.CONTENT_TYPE] = text(content_type)
    if meta:
        item[Attr.META] = binary(compact_json(meta))
    return item


def read_inline(reader: Reader) -> dict[str, Any]:
    """Fields of a task out of its row. Raises CorruptItem."""
    fields = _fields(reader, reader.maybe_json(Attr.META))
    content_type = reader.maybe_text(Attr.CONTENT_TYPE)
    if content_type is not None:
        fields["payload_content_type"] = content_type
    fields["payload"] = reader.maybe_bytes(Attr.PAYLOAD) or b""
    return fields


def body_content(task: Task) -> Item:
    """The content of a body item: payload and meta data."""
    payload, meta = task.payload, meta_of(task)
    return packed({Attr.PAYLOAD: payload, Attr.META: compact_json(meta) if meta else b""})


def read_body(reader: Reader) -> dict[str, Any]:
    """Fields of a task out of its body item. Raises CorruptItem."""
    content = unpacked(reader, Attr.PAYLOAD)
    return {
        **_fields(reader, reader.json_of(Attr.META, unpacked(reader, Attr.META))),
        "payload": content or b"",
    }


def result_content(result: Result, attempt: Attempt) -> Item:
    """The content of a result item: the result, and what of the success doesn't fit into the row."""
    item = packed(
        {
            Attr.RESULT: result.content,
            Attr.UNKNOWN: compact_json(dict(attempt.unknown)) if attempt.unknown else b"",
        }
    )
    return item | texts({Attr.RESULT_TYPE: result.content_type, Attr.WORKER: attempt.worker})


def inline_result(result: Result) -> Item:
    """The result as attributes of the row."""
    item: Item = {} if result.content is None else {Attr.RESULT: binary(result.content)}
    return item | texts({Attr.RESULT_TYPE: result.content_type})


def texts(values: Mapping[Attr, str | None]) -> Item:
    """Texts as attributes, without the absent ones."""
    return {attr: text(value) for attr, value in values.items() if value is not None}


def packed(parts: Mapping[Attr, bytes | None]) -> Item:
    """Bytes as attributes, each compressed where that saves a write unit, without absent ones and
    empty meta data.
    """
    kept = {
        attr: part
        for attr, part in parts.items()
        if part or (part is not None and attr is Attr.RESULT)
    }
    smaller = {attr: squeezed(part) for attr, part in kept.items()}
    item: Item = {attr: binary(smaller[attr] or part) for attr, part in kept.items()}
    compressed = " ".join(attr.value for attr, part in smaller.items() if part is not None)
    return {**item, Attr.ENCODING: text(compressed)} if compressed else item


def unpacked(reader: Reader, attr: Attr) -> bytes | None:
    """Bytes of an attribute as they were before they were packed."""
    return reader.unpacked(
        attr, compressed=attr.value in (reader.maybe_text(Attr.ENCODING) or "").split()
    )


def squeezed(content: bytes) -> bytes | None:
    """The content compressed, None where that saves no write unit."""
    if len(content) + _KEY_BYTES <= _WRITE_UNIT:
        return None
    smaller = zlib.compress(content)
    return smaller if _units(smaller) < _units(content) else None


def _units(content: bytes) -> int:
    return -(-(len(content) + _KEY_BYTES) // _WRITE_UNIT)


def with_end(item: Item, ends_at: datetime | None) -> Item:
    """The item with its TTL; without one it stays for good."""
    return item if ends_at is None else {**item, Attr.EXPIRES_AT: {"N": str(seconds_up(ends_at))}}


def _fields(reader: Reader, meta: Any) -> dict[str, Any]:
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        raise reader.corrupt(f"{Attr.META} is not an object")
    return {field: meta[name] for name, field in _META.items() if name in meta}
