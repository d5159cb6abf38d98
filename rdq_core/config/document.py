"""Configuration written by people (files, and KEY=VALUE of `queue set`) as validated layers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rdq_core.config.checking import check_file, check_queue, keys_below, kind_below
from rdq_core.config.effective import effective
from rdq_core.config.merge import deep_merge
from rdq_core.config.messages import joined, shown, unknown_key
from rdq_core.config.reader import read
from rdq_core.config.sections import Part, SettingKind
from rdq_core.config.settings import Queue, QueueSettings
from rdq_core.errors import ConfigInvalid

_FORM: Final = "KEY=VALUE, such as retry.max_attempts=8; an empty value removes the key"
_LONGEST_KEY: Final = 512
"""The longest name of a handler with the keys around it."""


@dataclass(frozen=True, slots=True)
class Document:
    """A configuration file: the declared layer of each queue, and their defaults."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def parse_document(text: str | bytes) -> Document:
    """The file's layers in canonical spelling, each queue checked together with the defaults.

    The first problem raises ConfigInvalid, its hint lists further ones. Defaults are checked
    whether used or not.
    """
    reading = read(text)
    return document_of(reading.data, lines=reading.lines)


def document_of(
    data: object, *, lines: Mapping[tuple[str | int, ...], int] | None = None
) -> Document:
    """The document in parsed data, from a program or a CloudFormation resource."""
    checked = check_file(data, lines=lines)
    document = Document(checked.get("defaults", {}), checked.get("queues", {}))
    QueueSettings.from_plain({**document.defaults, "queue": "defaults"}, path="defaults")
    for queue, declared in document.queues.items():
        effective(queue, declared, document.defaults)
    return document


def assign(layer: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """The layer with the KEY=VALUE texts applied in order; an empty value removes its key.

    Values are read as in a file, so a list is `classification.permanent=[ValueError]`. The result
    is validated by itself: its relations to the queue's other layers are checked by `effective`.
    Raises ConfigInvalid naming the key.
    """
    changed = deep_merge({}, layer)
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip() or len(key) > _LONGEST_KEY:
            raise ConfigInvalid(
                joined("", [key.strip()]) or "set",
                f"{shown(assignment)} is refused; accepted: {_FORM}",
            )
        path = _steps(key.strip(), value)
        changed = (
            _with(changed, path, _validated(path, value))
            if value.strip()
            else _without(changed, path)
        )
    return changed


def _validated(path: tuple[str, ...], text: str) -> Any:
    """The value in canonical spelling, checked alone, so that an error concerns the assignment."""
    value = check_queue(_with({}, path, _read(".".join(path), text)), path="")
    for step in path:
        value = value[step]
    return value


def _read(key: str, text: str) -> Any:
    try:
        return read(text).data
    except ConfigInvalid as error:
        raise ConfigInvalid(key, error.problem) from None


def _steps(key: str, value: str) -> tuple[str, ...]:
    """The path of a dotted key; a handler's name may contain dots too."""
    first, _, rest = key.partition(".")
    path = (
        ("handlers", *_handler_steps(rest))
        if first == "handlers" and rest
        else tuple(key.split("."))
    )
    kind: SettingKind[Any] = Part(Queue)
    for step in path:
        known = keys_below(kind)
        if known is not None and step not in known:
            raise unknown_key(key, value, known)
        kind = kind_below(kind, step)
    return path


def _handler_steps(rest: str) -> tuple[str, ...]:
    ref, _, last = rest.rpartition(".")
    if ref.endswith(".outcome"):
        return (ref.removesuffix(".outcome"), "outcome", last)
    return (ref, last) if ref else (last,)


def _with(layer: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {**layer, first: _with(layer.get(first, {}), tuple(rest), value) if rest else value}


def _without(layer: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The layer without the key, and without the mappings that only held it."""
    first, *rest = path
    left = _without(layer.get(first, {}), tuple(rest)) if rest else {}
    kept = {key: value for key, value in layer.items() if key != first}
    return {**kept, first: left} if left else kept
