"""Checks untrusted configuration data, and returns it as a layer in canonical spelling.

The check walks the table of settings. A layer is partial, so `effective` checks the relations
between keys on the merged layers.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rdq_core.config.kinds import TextList, ValueKind
from rdq_core.config.messages import THE_FILE, joined, missing, refusal, unknown_key
from rdq_core.config.sections import Part, PartMap, Section, SettingKind, keys_of
from rdq_core.config.settings import CONFIG_VERSION, ConfigFile, Queue
from rdq_core.errors import ConfigInvalid

Path = tuple[str | int, ...]
Lines = Mapping[Path, int]

_MOST_MENTIONED: Final = 5
_VERSION: Final = "config_version"


def check_queue(data: object, *, path: str, lines: Lines | None = None) -> dict[str, Any]:
    """One queue's layer, declared or override, in canonical spelling. Raises ConfigInvalid."""
    return _Check(path, lines).whole(Queue, data)


def check_file(data: object, *, lines: Lines | None = None) -> dict[str, Any]:
    """A whole file in canonical spelling. A newer `config_version` is refused before all else."""
    check = _Check("", lines)
    if isinstance(data, dict):
        check.version(data)
    return check.whole(ConfigFile, data)


def keys_below(kind: SettingKind[Any]) -> list[str] | None:
    """The keys that may stand below a value of this kind; None where any name may."""
    if isinstance(kind, PartMap):
        return None
    return list(keys_of(kind.section)) if isinstance(kind, Part) else []


def kind_below(kind: SettingKind[Any], step: str) -> SettingKind[Any]:
    """The kind of what stands below a key or a name."""
    if isinstance(kind, PartMap):
        return Part(kind.section)
    assert isinstance(kind, Part)  # noqa: S101 - nothing is below a value
    return keys_of(kind.section)[step].kind


class _Check:
    """One walk over untrusted data, which collects refusals with their positions."""

    def __init__(self, root: str, lines: Lines | None) -> None:
        self._root, self._lines = root, lines or {}
        self._refusals: list[tuple[int, ConfigInvalid]] = []

    def whole(self, section: type[Section], data: object) -> dict[str, Any]:
        """The data in canonical spelling.

        Raises the first refusal in the order of the file; its hint lists the others.
        """
        checked: dict[str, Any] = self._value(Part(section), data, ())
        if not self._refusals:
            return checked
        first, *others = [each for _, each in sorted(self._refusals, key=lambda pair: pair[0])]
        if others:
            mentioned = "\n".join(f"  {other.message}" for other in others[:_MOST_MENTIONED])
            first.hint = f"{len(others)} more to mend:\n{mentioned}"
        raise first

    def version(self, data: Mapping[str, Any]) -> None:
        """Refuse a newer version at once, and a file without one."""
        version, line = data.get(_VERSION), self._lines.get((_VERSION,))
        if isinstance(version, int) and not isinstance(version, bool) and version > CONFIG_VERSION:
            accepted = f"{CONFIG_VERSION}, the newest that this rdq reads"
            note = "upgrade rdq, or write the file in the older format"
            raise refusal(_VERSION, version, accepted, note=note, line=line)
        if _VERSION not in data:
            self._refusals.append((0, missing(_VERSION, str(CONFIG_VERSION))))

    def _value(self, kind: SettingKind[Any], value: Any, at: Path) -> Any:
        match kind:
            case Part() if isinstance(value, dict):
                return self._section(kind.section, value, at)
            case PartMap() if isinstance(value, dict):
                return self._named(kind, value, at)
            case TextList() if isinstance(value, list):
                return [self._value(kind.item, each, (*at, i)) for i, each in enumerate(value)]
            case ValueKind():
                return self._single(kind, value, at)
            case _:
                return self._refuse(at, value, kind.accepted)

    def _single(self, kind: ValueKind[Any], value: object, at: Path) -> Any:
        try:
            return kind.check(value)
        except ValueError as error:
            return self._refuse(at, value, kind.accepted, kind.note(value, error))

    def _section(self, section: type[Section], data: dict[Any, Any], at: Path) -> dict[str, Any]:
        known = keys_of(section)
        checked = {
            key: self._value(setting.kind, data[key], (*at, key))
            for key, setting in known.items()
            if key in data
        }
        for key in (key for key in data if key not in known):
            self._unknown(section, data[key], (*at, str(key)))
        return checked

    def _named(self, kind: PartMap[Any], data: dict[Any, Any], at: Path) -> dict[str, Any]:
        part = Part(kind.section)
        return {
            self._single(kind.name, name, (*at, str(name))): self._value(
                part, value, (*at, str(name))
            )
            for name, value in data.items()
        }

    def _unknown(self, section: type[Section], value: object, at: Path) -> None:
        key, above = str(at[-1]), str(at[-2]) if len(at) > 1 else ""
        homes = [home for home in _homes(key) if home != above]
        note = f"{key} belongs under {homes[0]}" if homes else ""
        path, line = joined(self._root, at), self._lines.get(at)
        self._keep(at, unknown_key(path, value, keys_of(section), note=note, line=line))

    def _refuse(self, at: Path, value: object, accepted: str, note: str = "") -> None:
        path, line = joined(self._root, at) or THE_FILE, self._lines.get(at)
        self._keep(at, refusal(path, value, accepted, note=note, line=line))

    def _keep(self, at: Path, refused: ConfigInvalid) -> None:
        self._refusals.append((self._lines.get(at, 0), refused))


def _homes(key: str) -> Iterator[str]:
    for name, setting in keys_of(Queue).items():
        if isinstance(setting.kind, Part) and key in keys_of(setting.kind.section):
            yield name
