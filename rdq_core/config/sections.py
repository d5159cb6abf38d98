"""How a key of the configuration is declared, once, and how a section of such keys behaves.

A section is a dataclass whose fields are `Setting` descriptors. What an editor and mypy see is an
ordinary dataclass: `Retry(max_attempts=8, max_backoff="1h")` takes what people write, and
`retry.max_backoff` is a timedelta. Everything else, from checking a file to the page in docs, walks
`keys_of(section)`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Protocol,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
)

from rdq_core.config.kinds import ValueKind
from rdq_core.config.messages import missing, refusal
from rdq_core.errors import ConfigInvalid

Given_contra = TypeVar("Given_contra", contravariant=True)
Read_co = TypeVar("Read_co", covariant=True)
AnySection = TypeVar("AnySection", bound="Section")

_SETTING: Final = "setting"


class SettingKind(Protocol[Read_co]):
    """What a key may hold: a ValueKind, a TextList, a Part or a PartMap."""

    @property
    def accepted(self) -> str:
        """What the key takes, for refusals."""

    @property
    def absent(self) -> Any:
        """The value of a key that is not given and has no default."""

    def read(self, value: object, path: str) -> Read_co:
        """The typed value of stored data, or of a typed value. Raises ConfigInvalid."""

    def plain(self, value: Any) -> Any:
        """The typed value as JSON data."""


@dataclass(frozen=True, slots=True)
class _Unread:
    """A given value that can't be read as it is, kept for the check of the layer."""

    given: object


class Setting(Generic[Given_contra, Read_co]):
    """The declaration of one key: its kind, and its default as a file would write it.

    A default of None is no default. The docstring below the declaration is the key's meaning. As a
    dataclass field it takes what a file may contain or a typed value, and None for a key that is
    not set. It reads as the typed value of what was given, or else of the default.
    """

    def __init__(self, default: Any, kind: SettingKind[Read_co]) -> None:
        self.default, self.kind = default, kind
        self._unset = kind.absent if default is None else kind.read(default, "default")

    def __get__(self, section: object, owner: type) -> Read_co:
        # Python comes here for keys that aren't given; of the class, for a field's default.
        return cast("Read_co", None if section is None else self._unset)

    if TYPE_CHECKING:
        # What the constructor takes. Missing at run time, where a given key is a plain attribute.
        def __set__(self, section: object, given: Given_contra | None) -> None: ...

    def typed(self, given: object) -> object:
        """The typed value of a given value."""
        if not _holds_sections(self.kind, given):
            return _Unread(given)
        try:
            return self.kind.read(given, "given")
        except ConfigInvalid:
            return _Unread(given)


def required(kind: ValueKind[str]) -> Any:
    """The declaration of a text that its section requires."""
    return field(metadata={_SETTING: Setting[str, str](None, kind)})


class Section:
    """A mapping of keys in the configuration, all of them optional because layers are partial.

    An instance knows which keys were given. The others read as their defaults.
    """

    declared_keys: ClassVar[Mapping[str, Setting[Any, Any]]] = {}

    def __post_init__(self) -> None:
        for key, setting in self.declared_keys.items():
            given = vars(self).pop(key)
            if given is not None:
                vars(self)[key] = setting.typed(given)

    @classmethod
    def read(cls, data: object, path: str) -> Self:
        """The section that stored data describes, its relations checked.

        Keys that this rdq doesn't know, a newer one's, are ignored. Raises ConfigInvalid naming the
        path.
        """
        if not isinstance(data, Mapping):
            raise refusal(path, data, "a mapping of keys to values")
        section, held = cls.__new__(cls), dict[str, Any]()
        for key, setting in keys_of(cls).items():
            where = f"{path}.{key}"
            if key in data:
                held[key] = setting.kind.read(data[key], where)
            elif isinstance(setting.kind, Part) and not setting.kind.optional:
                held[key] = setting.kind.read({}, where)
            elif not hasattr(cls, key):
                raise missing(where, "text")
        vars(section).update(held)
        for key, accepted in section.broken_relations():
            values = section.to_plain() | section.layer()
            raise refusal(f"{path}.{key}", values[key], accepted)
        return section.resolved()

    def broken_relations(self) -> Iterable[tuple[str, str]]:
        """For each broken relation between keys: the key to refuse, and what it accepts."""
        return ()

    def resolved(self) -> Self:
        """The section with the values that follow from other keys."""
        return self

    def filled(self, **typed: Any) -> Self:
        """The section with these typed values in place of its own."""
        made = type(self).__new__(type(self))
        vars(made).update(vars(self) | typed)
        return made

    def is_given(self, key: str) -> bool:
        """Whether the key was given, not defaulted."""
        return key in vars(self)

    def layer(self) -> dict[str, Any]:
        """The keys that were given, as a file would have them; not checked yet."""
        return {
            key: _as_layer(setting.kind, vars(self)[key])
            for key, setting in self.declared_keys.items()
            if key in vars(self)
        }

    def to_plain(self) -> dict[str, Any]:
        """Every key that is given or has a default, as the JSON data that `read` reads."""
        plain = {
            key: setting.kind.plain(getattr(self, key))
            for key, setting in self.declared_keys.items()
            if key in vars(self) or setting.default is not None
        }
        return {key: value for key, value in plain.items() if value is not None}


# Type checkers take it as not frozen, because mypy loses the descriptors of a frozen base class.
@dataclass_transform(kw_only_default=True, field_specifiers=(required,))
def section(cls: type[AnySection]) -> type[AnySection]:
    """Make a frozen dataclass of a class whose fields are settings."""
    made = dataclass(frozen=True, kw_only=True)(cls)
    keys = {each.name: _declaration(made, each) for each in fields(cast("Any", made))}
    made.declared_keys = {key: setting for key, setting in keys.items() if setting is not None}
    return made


@dataclass(frozen=True, slots=True)
class Part(Generic[AnySection]):
    """A section below a key. An `optional` one reads as None when it isn't given."""

    section: type[AnySection]
    optional: bool = False

    @property
    def accepted(self) -> str:
        """A mapping, with its keys."""
        return f"a mapping with the keys {', '.join(keys_of(self.section))}"

    @property
    def absent(self) -> AnySection | None:
        """The section with all its defaults, or None."""
        return None if self.optional else self.section()

    def read(self, value: object, path: str) -> AnySection:
        """The section of stored data. Raises ConfigInvalid naming the path."""
        return value if isinstance(value, self.section) else self.section.read(value, path)

    def plain(self, value: AnySection) -> dict[str, Any]:
        """The section as JSON data."""
        return value.to_plain()


@dataclass(frozen=True, slots=True)
class PartMap(Generic[AnySection]):
    """Sections by name."""

    name: ValueKind[str]
    section: type[AnySection]
    accepted: str = "a mapping from names to what they stand for"
    absent: Mapping[str, AnySection] = field(default_factory=dict)

    def read(self, value: object, path: str) -> Mapping[str, AnySection]:
        """The sections of stored data. Raises ConfigInvalid naming the path."""
        if not isinstance(value, Mapping):
            raise refusal(path, value, self.accepted)
        part = Part(self.section)
        return {name: part.read(each, f"{path}.{name}") for name, each in value.items()}

    def plain(self, value: Mapping[str, AnySection]) -> dict[str, Any]:
        """The sections as JSON data."""
        return {name: section.to_plain() for name, section in value.items()}


def keys_of(section: type[Section]) -> Mapping[str, Setting[Any, Any]]:
    """The keys of a section in their order, each with its declaration."""
    return section.declared_keys


def defaults_of(section: type[Section]) -> dict[str, Any]:
    """The defaults of a section's keys, as a file would give them."""
    return {
        key: defaults_of(setting.kind.section) if isinstance(setting.kind, Part) else default
        for key, setting in keys_of(section).items()
        if (default := setting.default) is not None or isinstance(setting.kind, Part)
    }


def _declaration(section: type[Section], declared: Field[Any]) -> Setting[Any, Any] | None:
    found = declared.metadata.get(_SETTING) or _descriptor(section, declared.name)
    return found if isinstance(found, Setting) else None


def _descriptor(section: type[Section], name: str) -> object:
    return next((vars(each)[name] for each in section.__mro__ if name in vars(each)), None)


def _as_layer(kind: SettingKind[Any], value: Any) -> Any:
    if isinstance(value, _Unread):
        return _as_given(value.given)
    if isinstance(value, Section):
        return value.layer()
    if isinstance(kind, PartMap):
        return {name: section.layer() for name, section in value.items()}
    return kind.plain(value)


def _holds_sections(kind: SettingKind[Any], given: object) -> bool:
    """Whether what stands for a section is one. A mapping in its place may have keys that no
    section has, and only the check of the layer refuses them.
    """
    if isinstance(kind, PartMap):
        return not isinstance(given, Mapping) or all(
            isinstance(each, kind.section) for each in given.values()
        )
    return not isinstance(kind, Part) or isinstance(given, kind.section)


def _as_given(value: Any) -> Any:
    """A value that was not read, with the sections in it as layers."""
    if isinstance(value, Section):
        return value.layer()
    if isinstance(value, Mapping):
        return {key: _as_given(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value
