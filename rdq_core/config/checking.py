"""Untrusted configuration data to a layer in canonical spelling, or one refusal that a person can
act on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import get_type_hints, is_typeddict

from rdq_core.config.accepted import REFUSED
from rdq_core.config.refusals import THE_FILE, joined, refusal, unknown_key
from rdq_core.config.schema import CONFIG_VERSION, DefaultsKeys, FileKeys, QueueKeys, adapter
from rdq_core.errors import ConfigInvalid

Path = tuple[str | int, ...]
Lines = Mapping[Path, int]

_BAD_KEY: Final = "[key]"
_MOST_MENTIONED: Final = 5


def check_queue(data: object, *, path: str, lines: Lines | None = None) -> dict[str, Any]:
    """One queue's layer, declared or override, in canonical spelling; ConfigInvalid when something
    isn't accepted.
    """
    return _check(QueueKeys, data, path, lines)


def check_defaults(
    data: object, *, path: str = "defaults", lines: Lines | None = None
) -> dict[str, Any]:
    """A file's `defaults` in canonical spelling, checked whether or not a queue uses them."""
    return _check(DefaultsKeys, data, path, lines)


def check_file(data: object, *, lines: Lines | None = None) -> dict[str, Any]:
    """A whole file in canonical spelling. What a newer version says isn't looked at."""
    if isinstance(data, dict):
        _check_version(data.get("config_version"), lines or {})
    return _check(FileKeys, data, "", lines)


def keys_below(keys: Any) -> list[str] | None:
    """The keys that a part of the schema accepts, none for a single value; None where any name is
    accepted.
    """
    return None if get_origin(keys) is dict else list(_hints(keys))


def held_by(keys: Any, step: str) -> Any:
    """The part of the schema below a key."""
    return _at(keys, (step,))


def _hints(keys: Any) -> dict[str, Any]:
    return get_type_hints(keys) if is_typeddict(keys) else {}


def _check_version(version: object, lines: Lines) -> None:
    if isinstance(version, int) and not isinstance(version, bool) and version > CONFIG_VERSION:
        accepted = f"{CONFIG_VERSION}, the newest that this rdq reads"
        note = "upgrade rdq, or write the file in the older format"
        raise refusal(
            "config_version", version, accepted, note=note, line=lines.get(("config_version",))
        )


def _check(keys: Any, data: object, path: str, lines: Lines | None) -> dict[str, Any]:
    try:
        checked: dict[str, Any] = adapter(keys).validate_python(data)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    else:
        return checked
    raise _first(
        [_explained(keys, problem, path, lines or {}) for problem in problems],
        problems,
        lines or {},
    )


def _first(
    refusals: list[ConfigInvalid], problems: Sequence[ErrorDetails], lines: Lines
) -> ConfigInvalid:
    """The refusal that stands first in the file, with a hint at the others."""
    order = sorted(range(len(refusals)), key=lambda index: lines.get(problems[index]["loc"], 0))
    first, *others = [refusals[index] for index in order]
    if others:
        told = "\n".join(f"  {other.message}" for other in others[:_MOST_MENTIONED])
        first.hint = f"{len(others)} more to mend:\n{told}"
    return first


def _explained(keys: Any, problem: ErrorDetails, path: str, lines: Lines) -> ConfigInvalid:
    loc = problem["loc"]
    if (
        loc[-1:] == (_BAD_KEY,) and problem["type"] != "extra_forbidden"
    ):  # else it is a key that is called like this
        loc = loc[:-1]
    where, value, line = joined(path, loc), problem["input"], lines.get(loc)
    match problem["type"]:
        case "extra_forbidden":
            return _unknown(keys, loc, where, value, line)
        case "missing":
            return ConfigInvalid(where, f"is missing; accepted: {_told(keys, loc)}")
        case kind if kind == REFUSED:
            return refusal(
                where, value, problem["ctx"]["accepted"], note=problem["ctx"]["note"], line=line
            )
        case _:
            return refusal(where or THE_FILE, value, _told(keys, loc), line=line)


def _unknown(keys: Any, loc: Path, where: str, value: object, line: int | None) -> ConfigInvalid:
    key = str(loc[-1])
    homes = [home for home in _homes(QueueKeys, key) if home != _section(loc)]
    known = _hints(_at(keys, loc[:-1]))
    note = f"{key} belongs under {homes[0]}" if homes else ""
    return unknown_key(where, value, known, note=note, line=line)


def _homes(keys: Any, key: str) -> Iterator[str]:
    for section, held in _hints(keys).items():
        if key in _hints(held):
            yield section


def _section(loc: Path) -> str:
    return str(loc[-2]) if len(loc) > 1 else ""


def _told(keys: Any, loc: Path) -> str:
    """What is accepted where something of quite another shape was found."""
    held = _at(keys, loc)
    if loc == ("config_version",):
        return str(CONFIG_VERSION)
    if known := _hints(held):
        return f"a mapping with the keys {', '.join(known)}"
    if get_origin(held) is list:
        return 'a list of text, such as ["*Timeout*"]'
    return "a mapping from names to what they stand for"


def _at(keys: Any, loc: Path) -> Any:
    """What the schema holds at a path."""
    held: Any = keys
    for step in loc:
        held = _hints(held).get(str(step)) or (get_args(held) or (None,))[-1]
    return held
