"""Items in the order of their keys, and index entries that remember how they were a while ago."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.fake_dynamodb.syntax import UnknownSyntax

StoredItem = Mapping[str, Mapping[str, Any]]
Key = tuple[Any, ...]

_PAST_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Change:
    """One item that a write has changed: how it was and how it is, None where it is not."""

    table: str
    key: Key
    before: StoredItem | None
    after: StoredItem | None


@dataclass(slots=True)
class Index:
    """A global secondary index. `attributes` are what it projects, None for everything.

    Each item's entries are kept with the moment they came about, so that a reader may see one that
    is outdated.
    """

    name: str
    partition: str
    sort: str
    attributes: frozenset[str] | None
    past: dict[Key, list[tuple[float, StoredItem | None]]] = field(default_factory=dict)

    def note(self, key: Key, item: StoredItem | None, at: float) -> None:
        """An item has changed; it leaves the index when it lacks one of the index's keys."""
        entry = (
            None
            if item is None or not (self.partition in item and self.sort in item)
            else self._projected(item)
        )
        versions = self.past.setdefault(key, [(float("-inf"), None)])
        if versions[-1][1] != entry:
            versions.append((at, entry))
            del versions[:-_PAST_KEPT]

    def entries(
        self, partition: str, as_of: Callable[[], float]
    ) -> Iterator[tuple[Key, StoredItem]]:
        """The entries of a partition, each as it was at the moment that `as_of` gives for it."""
        for key, versions in self.past.items():
            entry = _at(versions, as_of())
            if entry is not None and entry[self.partition]["S"] == partition:
                yield key, entry

    def _projected(self, item: StoredItem) -> StoredItem:
        if self.attributes is None:
            return item
        return {name: value for name, value in item.items() if name in self.attributes}


def _at(versions: list[tuple[float, StoredItem | None]], moment: float) -> StoredItem | None:
    for since, entry in reversed(versions):
        if since <= moment:
            return entry
    return versions[0][1]


class Table:
    """One table: items by partition and sort key, both strings."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.name: str = definition["TableName"]
        self.partition, self.sort = _key_names(definition["KeySchema"])
        self.items: dict[str, dict[str, StoredItem]] = defaultdict(dict)
        base = frozenset({self.partition, self.sort})
        self.indexes = {
            each["IndexName"]: _index(each, base)
            for each in definition.get("GlobalSecondaryIndexes", ())
        }

    def key_of(self, item: Mapping[str, Any]) -> tuple[str, str]:
        """The key of an item, or of a request's `Key`. Raises KeyError when it has none."""
        return str(item[self.partition]["S"]), str(item[self.sort]["S"])

    def get(self, key: tuple[str, str]) -> StoredItem | None:
        """The item of a key."""
        return self.items[key[0]].get(key[1]) if key[0] in self.items else None

    def put(self, key: tuple[str, str], item: StoredItem | None, at: float) -> Change:
        """Store an item or, with None, remove what is there."""
        before = self.get(key)
        if item is None:
            self.items[key[0]].pop(key[1], None)
        else:
            self.items[key[0]][key[1]] = item
        for index in self.indexes.values():
            index.note(key, item, at)
        return Change(self.name, key, before, item)

    def every(self) -> Iterator[StoredItem]:
        """All items."""
        for partition in self.items.values():
            yield from partition.values()


def _key_names(schema: list[Mapping[str, str]]) -> tuple[str, str]:
    names = {part["KeyType"]: str(part["AttributeName"]) for part in schema}
    return names["HASH"], names["RANGE"]


def _index(definition: Mapping[str, Any], base: frozenset[str]) -> Index:
    partition, sort = _key_names(definition["KeySchema"])
    projection = definition["Projection"]
    match projection["ProjectionType"]:
        case "ALL":
            return Index(definition["IndexName"], partition, sort, None)
        case "INCLUDE":
            attributes = base | {partition, sort, *map(str, projection["NonKeyAttributes"])}
            return Index(definition["IndexName"], partition, sort, frozenset(attributes))
        case other:
            raise UnknownSyntax(f"an index that projects {other}")
