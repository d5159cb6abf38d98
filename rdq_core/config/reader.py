"""Strict YAML, which includes JSON, as plain data with the line of each value.

Only a JSON number is a number. What YAML alone reads as a number, a boolean or a date stays text,
marked as `Unquoted`: it is refused where text is expected, and accepted where it is a known word
(`off`). Size, depth and the number of values are bounded while reading; an alias counts with all
the values that it stands for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from rdq_core.config.messages import THE_FILE, Unquoted, WrittenFloat, joined, shown
from rdq_core.errors import ConfigInvalid

MOST_BYTES: Final = 1024 * 1024
MOST_DEPTH: Final = 20
MOST_VALUES: Final = 50_000

_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ESCAPE: Final = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_READINGS: Final = {
    "tag:yaml.org,2002:bool": "a boolean",
    "tag:yaml.org,2002:int": "a number",
    "tag:yaml.org,2002:float": "a number",
    "tag:yaml.org,2002:timestamp": "a date",
    "tag:yaml.org,2002:null": "nothing",
}
_BOOLEAN_IN_YAML_1_1: Final = frozenset("yYnN")
_OCTAL_IN_YAML_1_2: Final = re.compile(r"0o[0-7]+")

Path = tuple[str | int, ...]


@dataclass(slots=True)
class ParsedDocument:
    """The data of one document, and the line of each path."""

    data: Any
    lines: dict[Path, int] = field(default_factory=dict)


def read(text: str | bytes) -> ParsedDocument:
    """The document's data. Raises ConfigInvalid with the line unless it is one plain document."""
    decoded = _decoded(text)
    try:
        return _Builder(
            yaml.parse(_json_as_yaml(decoded) if _is_json(decoded) else decoded, Loader=_Loader)
        ).document()
    except yaml.YAMLError as error:
        raise _not_yaml(error) from None


def _decoded(text: str | bytes) -> str:
    try:
        content = text if isinstance(text, bytes) else text.encode()
        if len(content) > MOST_BYTES:
            raise ConfigInvalid(
                THE_FILE, f"is {len(content)} bytes long; accepted: at most {MOST_BYTES} bytes"
            )
        return content.decode("utf-8-sig")
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        raise ConfigInvalid(
            THE_FILE, f"is not UTF-8 (byte {error.start}); accepted: YAML or JSON in UTF-8"
        ) from None


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _json_as_yaml(text: str) -> str:
    r"""JSON as YAML: tabs become spaces, surrogate pairs (`\ud83d\ude00`) characters."""
    return _ESCAPE.sub(_joined_surrogates, text.replace("\t", "  "))


def _joined_surrogates(escape: re.Match[str]) -> str:
    high, low = escape["high"], escape["low"]
    return bytes.fromhex(high + low).decode("utf-16-be") if high else escape[0]


def _not_yaml(error: yaml.YAMLError) -> ConfigInvalid:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    starred = re.search("alias|anchor", str(getattr(error, "context", "")))
    note = "; text that starts with * or & must be quoted" if starred else ""
    return ConfigInvalid(THE_FILE, f"{place}{problem}; accepted: one YAML or JSON document{note}")


class _Builder:
    """Builds data from parser events.

    PyYAML's own constructor recurses without limit, and keeps the last of duplicate keys.
    """

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._lines: dict[Path, int] = {}
        self._values = 0

    def document(self) -> ParsedDocument:
        next(self._events)  # the stream's start
        if isinstance(next(self._events), StreamEndEvent):
            raise ConfigInvalid(THE_FILE, "is empty; accepted: one YAML or JSON document")
        data = self._value(next(self._events), ())
        next(self._events)  # the document's end
        extra = next(self._events)
        if isinstance(extra, DocumentStartEvent):
            raise _refused(
                (), extra, "a second document starts here; accepted: one document per file"
            )
        return ParsedDocument(data, self._lines)

    def _value(self, event: Event, path: Path) -> Any:
        self._lines.setdefault(path, _line(event))
        if isinstance(event, AliasEvent):
            return self._alias(event, path)
        if not isinstance(event, NodeEvent):
            raise _refused(path, event, "there is no value here")
        before = self._values
        self._count(1, event, path)
        value = self._built(event, path)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._values - before)
        return value

    def _built(self, event: NodeEvent, path: Path) -> Any:
        # The parser gives some quoted scalars the tag "!", which changes nothing about a text.
        if (tag := getattr(event, "tag", None)) not in (None, "!"):
            raise _refused(path, event, f"the tag {tag} is refused; accepted: values without tags")
        if len(path) > MOST_DEPTH:
            raise _refused(path, event, f"nested too deeply; accepted: at most {MOST_DEPTH} levels")
        match event:
            case ScalarEvent():
                return _scalar(event)
            case MappingStartEvent():
                return self._mapping(path)
            case SequenceStartEvent():
                return self._sequence(path)
            case _:
                raise _refused(path, event, "there is no value here")

    def _mapping(self, path: Path) -> dict[str, Any]:
        built: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(event, path)
            if key in built:
                first = self._lines[(*path, key)]
                raise _refused(
                    (*path, key),
                    event,
                    f"the key is given twice, first on line {first}; accepted: once",
                )
            self._lines[(*path, key)] = _line(event)
            built[key] = self._value(next(self._events), (*path, key))
        return built

    def _key(self, event: Event, path: Path) -> str:
        if not isinstance(event, ScalarEvent) or event.tag is not None:
            raise _refused(path, event, "this key is not text; accepted: plain names as keys")
        if event.value == "<<" and _is_plain(event):
            raise _refused(
                (*path, "<<"),
                event,
                "merge keys are refused; accepted: shared keys under `defaults`",
            )
        key = _scalar(event)
        if isinstance(key, Unquoted) or not isinstance(key, str):
            note = f'is not text to YAML; quote it: "{shown(key)}"; accepted: text as keys'
            raise _refused((*path, shown(key)), event, f"the key {note}")
        return key

    def _sequence(self, path: Path) -> list[Any]:
        built: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            built.append(self._value(event, (*path, len(built))))
        return built

    def _alias(self, event: AliasEvent, path: Path) -> Any:
        if event.anchor not in self._anchors:
            alias = f"*{event.anchor}"
            note = f'nothing has this name; quote text: "{alias}"'
            raise _refused(path, event, f"{alias} is an alias to YAML, and {note}")
        value, values = self._anchors[event.anchor]
        self._count(values, event, path)
        return value

    def _count(self, values: int, event: Event, path: Path) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise _refused(
                path, event, f"too many values, aliases included; accepted: at most {MOST_VALUES}"
            )


def _is_plain(event: Event) -> bool:
    return isinstance(event, ScalarEvent) and event.implicit[0]


def _scalar(event: ScalarEvent) -> Any:
    text = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return WrittenFloat(text)
    reading = _reading(text)
    return Unquoted(text, reading) if reading else text


def _reading(text: str) -> str | None:
    """What YAML 1.1 or 1.2 reads this unquoted text as; None when it is text in both."""
    if text in _BOOLEAN_IN_YAML_1_1:
        return "a boolean"
    if _OCTAL_IN_YAML_1_2.fullmatch(text):
        return "a number"
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers.get(text[0], [])
    return next(
        (_READINGS[tag] for tag, pattern in resolvers if tag in _READINGS and pattern.match(text)),
        None,
    )


def _refused(path: Path, event: Event, problem: str) -> ConfigInvalid:
    return ConfigInvalid(joined("", path) or THE_FILE, f"{problem} (line {_line(event)})")


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0
