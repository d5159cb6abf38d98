"""What DynamoDB would bill: capacity units of the requests that a client really sends, by the
published rules.

    with Meter(client) as meter:
        store.complete(claim, ...)
    assert meter.write_units == 2

The rules ("Provisioned capacity mode", "Managing throughput capacity for global secondary indexes",
"Amazon DynamoDB Transactions" in the developer guide; on-demand counts the same units):

    write          a unit for each started KB of the larger of the item before and after
    index          nothing where its entry stays as it is; the larger of both where it changes in
                   place; one write where it appears or goes, two where its key changes
    transaction    its items twice, their index entries once
    failed         a condition that does not hold costs the table what the write would have, and the
                   indexes nothing
    read           a unit for each started 4 KB that was read, at least one; half of it where not
                   consistent

Engines for tests bill otherwise, or nothing at all, so the meter reads the items that a request is
about to touch just before it is sent and just after. That makes it a tool for one thread, on an
engine for tests. Of PartiQL it knows INSERT, whose duplicates cost what a failed condition does.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Self

from rdq_core.stores.dynamodb.values import Item, item_size

_WRITE_BYTES: Final = 1024
_READ_BYTES: Final = 4096
_NOT_HELD: Final = frozenset({"ConditionalCheckFailedException", "TransactionCanceledException"})
_WRITES: Final = frozenset(
    {
        "PutItem",
        "UpdateItem",
        "DeleteItem",
        "BatchWriteItem",
        "TransactWriteItems",
        "BatchExecuteStatement",
    }
)
_READS: Final = frozenset({"GetItem", "Query", "Scan"})
_INSERT: Final = re.compile(r"""INSERT INTO "(?P<table>[^"]+)" VALUE \{(?P<names>[^}]*)\}""")
_NAME: Final = re.compile(r"'([^']+)': \?")
_CONTEXT: Final = "rdq-meter"
_KEEPS_ALL_READ: Final = ("FilterExpression", "ProjectionExpression", "Select")


@dataclass(frozen=True, slots=True)
class Charge:
    """The cost of one request."""

    operation: str
    write_units: float = 0.0
    read_units: float = 0.0


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index: the table's key and its own, and what else it holds; None for all of an
    item.
    """

    table_keys: tuple[str, ...]
    keys: tuple[str, ...]
    projected: frozenset[str] | None

    def entry(self, item: Item | None) -> Item | None:
        """The index entry of an item; None if it has none."""
        if item is None or not item.keys() >= set(self.keys):
            return None
        if self.projected is None:
            return item
        held = {*self.table_keys, *self.keys, *self.projected}
        return {name: value for name, value in item.items() if name in held}

    def write_units(self, before: Item | None, after: Item | None) -> int:
        """What changing an item costs in this index."""
        old, new = self.entry(before), self.entry(after)
        if old == new:
            return 0
        if old is not None and new is not None and self._key(old) != self._key(new):
            return write_units(old) + write_units(new)
        return write_units(old, new)

    def _key(self, entry: Item) -> list[Any]:
        return [entry[name] for name in self.keys]


@dataclass(frozen=True, slots=True)
class Shape:
    """A table's key and indexes."""

    keys: tuple[str, ...]
    indexes: tuple[Index, ...]

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> "Shape":
        """The shape in an answer of DescribeTable, or in arguments of CreateTable."""
        keys = _names(description["KeySchema"])
        indexes = description.get("GlobalSecondaryIndexes", ())
        return cls(
            keys,
            tuple(Index(keys, _names(each["KeySchema"]), _projected(each)) for each in indexes),
        )

    def index_units(self, before: Item | None, after: Item | None) -> int:
        """What changing an item costs in all indexes."""
        return sum(index.write_units(before, after) for index in self.indexes)


def write_units(*items: Item | None) -> int:
    """Write units of the largest of these; one where there is none, because a write that finds
    nothing costs one.
    """
    size = max((item_size(item) for item in items if item is not None), default=0)
    return max(1, ceil(size / _WRITE_BYTES))


def read_units(size: int, *, consistent: bool) -> float:
    """Read units of one request that has read this number of bytes."""
    return max(1, ceil(size / _READ_BYTES)) * (1.0 if consistent else 0.5)


class Meter:
    """Counts what a low-level client's requests to DynamoDB cost, while in its `with` statement.

    `charges` has one entry a request. A request that was answered with any other error than a
    failed condition costs nothing. `is_alone` promises that no other client writes between two
    requests of this one, which saves a read of each item.
    """

    def __init__(self, client: Any, *, is_alone: bool = False) -> None:
        self._client = client
        self._is_alone = is_alone
        self._known: dict[str, Item | None] = {}
        self._shapes: dict[str, Shape] = {}
        self._is_witness = False
        self.charges: list[Charge] = []

    @property
    def write_units(self) -> float:
        """Write units so far."""
        return sum(charge.write_units for charge in self.charges)

    @property
    def read_units(self) -> float:
        """Read units so far."""
        return sum(charge.read_units for charge in self.charges)

    @property
    def operations(self) -> list[str]:
        """The requests so far, in order."""
        return [charge.operation for charge in self.charges]

    def clear(self) -> None:
        """Reset the counts."""
        self.charges.clear()

    def __enter__(self) -> Self:
        self._known.clear()
        self._client.meta.events.register(
            "before-parameter-build.dynamodb", self._before, unique_id=_CONTEXT
        )
        self._client.meta.events.register(
            "after-call.dynamodb", self._after, unique_id=f"{_CONTEXT}-after"
        )
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._client.meta.events.unregister("before-parameter-build.dynamodb", unique_id=_CONTEXT)
        self._client.meta.events.unregister("after-call.dynamodb", unique_id=f"{_CONTEXT}-after")

    # -- around a request --------------------------------------------------------------------------

    def _before(
        self, params: Mapping[str, Any], model: Any, context: dict[str, Any], **_: Any
    ) -> None:
        if self._is_witness:
            return
        context[_CONTEXT] = (dict(params), self._images(params) if model.name in _WRITES else ())

    def _after(
        self, parsed: Mapping[str, Any], model: Any, context: dict[str, Any], **_: Any
    ) -> None:
        if self._is_witness:
            return
        params, before = context[_CONTEXT]
        code = parsed.get("Error", {}).get("Code")
        if code is not None and code not in _NOT_HELD:
            self.charges.append(Charge(model.name))
        elif model.name in _WRITES:
            self.charges.append(
                Charge(model.name, write_units=self._written(model.name, params, before, code))
            )
        elif model.name in _READS:
            self.charges.append(
                Charge(model.name, read_units=self._read(model.name, params, parsed))
            )
        else:
            raise NotImplementedError(f"the meter has no rule for {model.name}")

    def _written(
        self, operation: str, params: Mapping[str, Any], before: Iterable[Item | None], code: Any
    ) -> float:
        times = 2 if operation == "TransactWriteItems" else 1
        units = 0
        for (table, given), old in zip(_targets(params), before, strict=True):
            if code is not None or (operation == "BatchExecuteStatement" and old is not None):
                units += times * write_units(old, given)
                continue
            new = self._image(table, given, may_be_known=False)
            units += times * write_units(old, new) + self._shape(table).index_units(old, new)
        return units

    def _read(self, operation: str, params: Mapping[str, Any], parsed: Mapping[str, Any]) -> float:
        consistent = bool(params.get("ConsistentRead"))
        if operation == "GetItem":
            return read_units(item_size(parsed.get("Item", {})), consistent=consistent)
        size = sum(item_size(item) for item in self._items_read(operation, params, parsed))
        return read_units(size, consistent=consistent)

    # -- the witness -------------------------------------------------------------------------------

    def _images(self, params: Mapping[str, Any]) -> list[Item | None]:
        return [
            self._image(table, given, may_be_known=self._is_alone)
            for table, given in _targets(params)
        ]

    def _image(self, table: str, given: Item, *, may_be_known: bool) -> Item | None:
        key = {name: given[name] for name in self._shape(table).keys}
        place = repr((table, key))
        if not (may_be_known and place in self._known):
            item = self._ask(
                self._client.get_item, TableName=table, Key=key, ConsistentRead=True
            ).get("Item")
            self._known[place] = item or None
        return self._known[place]

    def _items_read(
        self, operation: str, params: Mapping[str, Any], parsed: Mapping[str, Any]
    ) -> Iterable[Item]:
        """All that a query went through: what it filtered out is billed as well, and whole items
        are.
        """
        if not any(name in params for name in _KEEPS_ALL_READ):
            items: list[Item] = parsed["Items"]
            return items
        whole = {name: value for name, value in params.items() if name not in _KEEPS_ALL_READ}
        for given in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            used = {
                name: value for name, value in whole.pop(given, {}).items() if _is_used(name, whole)
            }
            whole |= {given: used} if used else {}
        call = self._client.query if operation == "Query" else self._client.scan
        found: list[Item] = self._ask(call, **whole)["Items"]
        return found

    def _shape(self, table: str) -> Shape:
        if table not in self._shapes:
            self._shapes[table] = Shape.of(
                self._ask(self._client.describe_table, TableName=table)["Table"]
            )
        return self._shapes[table]

    def _ask(self, call: Any, **arguments: Any) -> dict[str, Any]:
        self._is_witness = True
        try:
            answer: dict[str, Any] = call(**arguments)
        finally:
            self._is_witness = False
        return answer


def _targets(params: Mapping[str, Any]) -> Iterator[tuple[str, Item]]:
    """The tables and items, or their keys, of a write."""
    for part in _parts(params):
        yield part["TableName"], part.get("Item") or part["Key"]


def _parts(params: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "TransactItems" in params:
        for item in params["TransactItems"]:
            yield from item.values()
    elif "RequestItems" in params:
        for table, requests in params["RequestItems"].items():
            for request in requests:
                yield from ({"TableName": table, **body} for body in request.values())
    elif "Statements" in params:
        yield from map(_inserted, params["Statements"])
    else:
        yield params


def _inserted(statement: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _INSERT.fullmatch(statement["Statement"])
    if found is None:
        raise NotImplementedError("of PartiQL, the meter has a rule for INSERT alone")
    names = _NAME.findall(found["names"])
    return {
        "TableName": found["table"],
        "Item": dict(zip(names, statement["Parameters"], strict=True)),
    }


def _is_used(name: str, request: Mapping[str, Any]) -> bool:
    return name in request.get("KeyConditionExpression", "")


def _names(schema: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(each["AttributeName"] for each in schema)


def _projected(index: Mapping[str, Any]) -> frozenset[str] | None:
    projection = index["Projection"]
    return (
        None
        if projection["ProjectionType"] == "ALL"
        else frozenset(projection.get("NonKeyAttributes", ()))
    )
