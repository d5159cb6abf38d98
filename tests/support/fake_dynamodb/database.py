"""The operations, each one atomic: what is checked is checked before anything is written.

The invariant: a request that this database carries out, DynamoDB would carry out to the same
effect; and one that rdq must not send (a missing condition on an update, an unused name, a key that
is changed) is refused.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rdq_core.stores.dynamodb.values import item_size
from tests.support.fake_dynamodb import syntax
from tests.support.fake_dynamodb.refusals import cancelled, condition_failed, invalid, refusal
from tests.support.fake_dynamodb.syntax import UnknownSyntax
from tests.support.fake_dynamodb.tables import Change, Index, StoredItem, Table

Request = Mapping[str, Any]
Answer = dict[str, Any]

_TOKEN_LIFE: Final = 600.0
_MOST_IN_BATCH: Final = 25
_MOST_IN_TRANSACTION: Final = 100
_LARGEST_ITEM: Final = 400 * 1024
_PAGE_BYTES: Final = 1024 * 1024

_EXPRESSIONS: Final = frozenset({"ExpressionAttributeNames", "ExpressionAttributeValues"})
_CONDITIONED: Final = _EXPRESSIONS | {
    "TableName",
    "ConditionExpression",
    "ReturnValuesOnConditionCheckFailure",
}
_PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    "GetItem": frozenset({"TableName", "Key", "ConsistentRead"}),
    "PutItem": _CONDITIONED | {"Item"},
    "UpdateItem": _CONDITIONED | {"Key", "UpdateExpression", "ReturnValues"},
    "DeleteItem": _CONDITIONED | {"Key"},
    "BatchWriteItem": frozenset({"RequestItems"}),
    "TransactWriteItems": frozenset({"TransactItems", "ClientRequestToken"}),
    "Query": _EXPRESSIONS
    | {
        "TableName",
        "IndexName",
        "KeyConditionExpression",
        "FilterExpression",
        "ProjectionExpression",
    }
    | {"Select", "Limit", "ExclusiveStartKey", "ConsistentRead", "ScanIndexForward"},
}


def _no_lag() -> float:
    return 0.0


def _unwatched(_changes: Sequence[Change]) -> None:
    """The default `watch`: changes are not reported."""


class Database:
    """Tables, and what DynamoDB does with them.

    `now` is the time in seconds. `lag` gives, for each index entry that is read, how many seconds
    behind its table it is seen. `watch` gets what each write has changed, all of a transaction
    at once.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float] = time.monotonic,
        lag: Callable[[], float] = _no_lag,
        watch: Callable[[Sequence[Change]], None] = _unwatched,
    ) -> None:
        self.tables: dict[str, Table] = {}
        self._now = now
        self._lag = lag
        self._watch = watch
        self._done: dict[str, tuple[float, Any]] = {}
        self._lock = threading.RLock()

    def create_table(self, **definition: Any) -> None:
        """An empty table, ready at once, as CreateTable's arguments have it."""
        self.tables[definition["TableName"]] = Table(definition)

    def call(self, operation: str, request: Request) -> Answer:
        """Carry out one request. Raises ClientError as botocore does, and UnknownSyntax for what
        rdq doesn't send.
        """
        unknown = request.keys() - _PARAMETERS[operation]
        if unknown:
            raise UnknownSyntax(f"{operation} with {', '.join(sorted(unknown))}")
        with self._lock:
            match operation:
                case "GetItem":
                    return self._get(request)
                case "Query":
                    return self._query(request)
                case "BatchWriteItem":
                    return self._batch(request)
                case "TransactWriteItems":
                    return self._transact(request)
                case _:
                    return self._write(operation, request)

    def remove(self, table: str, key: tuple[str, str]) -> None:
        """Remove an item as DynamoDB itself does when its time to live is over."""
        with self._lock:
            self._watch([self.tables[table].put(key, None, self._now())])

    # -- reading -----------------------------------------------------------------------------------

    def _get(self, request: Request) -> Answer:
        if not request.get("ConsistentRead"):
            raise UnknownSyntax("a read that isn't consistent")
        table = self._table(request, "GetItem")
        item = table.get(table.key_of(request["Key"]))
        return {} if item is None else {"Item": dict(item)}

    def _query(self, request: Request) -> Answer:
        table = self._table(request, "Query")
        asked = syntax.condition(request["KeyConditionExpression"])
        _check_names(request, asked.used, "Query")
        names, values = _given(request)
        index = self._index(table, request)
        found = [
            (place, item)
            for place, item in self._in_order(table, index, request)
            if asked.test(item, names, values)
        ]
        is_forward = request.get("ScanIndexForward", True)
        if not is_forward:
            found.reverse()
        start = request.get("ExclusiveStartKey")
        if start is not None:
            after = _place(start, table, index)
            found = [
                (place, item)
                for place, item in found
                if (place > after if is_forward else place < after)
            ]
        return _page(found, request, table, index)

    def _index(self, table: Table, request: Request) -> Index | None:
        if "IndexName" not in request:
            if not request.get("ConsistentRead"):
                raise UnknownSyntax("a query of a table that isn't consistent")
            return None
        if request.get("ConsistentRead"):
            raise invalid("Consistent reads are not supported on global secondary indexes", "Query")
        index: Index = table.indexes[request["IndexName"]]
        return index

    def _in_order(
        self, table: Table, index: Index | None, request: Request
    ) -> list[tuple[Any, StoredItem]]:
        partition = str(_asked_partition(request, index.partition if index else table.partition))
        if index is None:
            items = [
                (item, _place(item, table, None))
                for item in table.items.get(partition, {}).values()
            ]
        else:
            as_of = self._now()
            entries = index.entries(partition, lambda: as_of - self._lag())
            items = [(item, _place(item, table, index)) for _, item in entries]
        return sorted(((place, item) for item, place in items), key=lambda pair: pair[0])

    # -- writing -----------------------------------------------------------------------------------

    def _write(self, operation: str, request: Request) -> Answer:
        plan = self._plan(operation, request)
        if not plan.holds:
            raise condition_failed(operation, plan.came_back)
        self._carry_out([plan])
        wants_new = request.get("ReturnValues") == "ALL_NEW"
        return {"Attributes": dict(plan.after or {})} if wants_new else {}

    def _transact(self, request: Request) -> Answer:
        token, items = request["ClientRequestToken"], request["TransactItems"]
        if self._was_done(token, items):
            return {}
        plans = [self._plan(*_part(item)) for item in items]
        if (
            len({(plan.table.name, plan.key) for plan in plans}) < len(plans)
            or len(plans) > _MOST_IN_TRANSACTION
        ):
            raise invalid(
                "Transaction request cannot include multiple operations on one item",
                "TransactWriteItems",
            )
        if not all(plan.holds for plan in plans):
            raise cancelled([plan.reason for plan in plans])
        self._done[token] = (self._now(), items)
        self._carry_out(plan for plan in plans if not plan.is_check)
        return {}

    def _was_done(self, token: str, items: Any) -> bool:
        done_at, done = self._done.get(token, (float("-inf"), None))
        if done_at + _TOKEN_LIFE < self._now():
            return False
        if done != items:
            raise refusal(
                "IdempotentParameterMismatchException",
                "another request had this token",
                "TransactWriteItems",
            )
        return True

    def _batch(self, request: Request) -> Answer:
        ((name, parts),) = request["RequestItems"].items()
        if len(parts) > _MOST_IN_BATCH:
            raise invalid("Too many items requested for the BatchWriteItem call", "BatchWriteItem")
        table = self._table({"TableName": name}, "BatchWriteItem")
        plans = [_part_of_batch(table, part) for part in parts]
        if len({plan.key for plan in plans}) < len(plans):
            raise invalid("Provided list of item keys contains duplicates", "BatchWriteItem")
        self._carry_out(plans)
        return {"UnprocessedItems": {}}

    def _plan(self, operation: str, request: Request) -> "_Plan":
        """What a write would do, and whether its condition holds."""
        table = self._table(request, operation)
        key = table.key_of(request["Item" if operation == "PutItem" else "Key"])
        before = table.get(key)
        names, values = _given(request)
        condition = (
            syntax.condition(request["ConditionExpression"])
            if "ConditionExpression" in request
            else None
        )
        if condition is None and operation == "UpdateItem":
            raise UnknownSyntax("an update without a condition, which would create a missing item")
        change = syntax.update(request["UpdateExpression"]) if operation == "UpdateItem" else None
        used = (condition.used if condition else frozenset()) | (
            change.used if change else frozenset()
        )
        _check_names(request, used, operation)
        holds = condition is None or condition.test(before or {}, names, values)
        after = None
        if operation == "PutItem":
            after = _stored(request["Item"])
        elif change is not None:
            after = _updated(before or request["Key"], change, names, values, table)
        wants_old = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        is_check = operation == "ConditionCheckItem"
        return _Plan(table, key, after, holds, before if wants_old else None, is_check=is_check)

    def _carry_out(self, plans: Iterable["_Plan"]) -> None:
        self._watch([plan.table.put(plan.key, plan.after, self._now()) for plan in plans])

    def _table(self, request: Request, operation: str) -> Table:
        table = self.tables.get(request["TableName"])
        if table is None:
            raise refusal("ResourceNotFoundException", "Requested resource not found", operation)
        return table


@dataclass(frozen=True, slots=True)
class _Plan:
    """A write that was checked and not yet carried out; or a check alone, which a transaction may
    have beside them.
    """

    table: Table
    key: tuple[str, str]
    after: StoredItem | None
    holds: bool
    came_back: StoredItem | None
    is_check: bool = False

    @property
    def reason(self) -> dict[str, Any]:
        """Why a transaction with this part was cancelled, as far as this part is concerned."""
        if self.holds:
            return {"Code": "None"}
        item = {} if self.came_back is None else {"Item": dict(self.came_back)}
        return {
            "Code": "ConditionalCheckFailed",
            "Message": "The conditional request failed",
            **item,
        }


def _part(item: Mapping[str, Any]) -> tuple[str, Request]:
    ((action, request),) = item.items()
    operation = f"{action}Item"
    if action == "ConditionCheck" and "ConditionExpression" not in request:
        raise invalid("A condition check needs a condition", "TransactWriteItems")
    if action not in ("Put", "Update", "Delete", "ConditionCheck"):
        raise UnknownSyntax(f"{action} in a transaction")
    return operation, request


def _part_of_batch(table: Table, part: Mapping[str, Any]) -> _Plan:
    ((action, request),) = part.items()
    if action == "PutRequest":
        item = _stored(request["Item"])
        return _Plan(table, table.key_of(item), item, holds=True, came_back=None)
    return _Plan(table, table.key_of(request["Key"]), None, holds=True, came_back=None)


def _given(request: Request) -> tuple[syntax.Names, syntax.Values]:
    return request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})


def _check_names(request: Request, used: frozenset[str], operation: str) -> None:
    """DynamoDB refuses names and values that no expression uses, as well as those that are
    missing.
    """
    for name in ("ProjectionExpression", "FilterExpression"):
        if name in request:
            text = request[name]
            used |= (
                {*syntax.projection(text)}
                if name == "ProjectionExpression"
                else syntax.condition(text).used
            )
    names, values = _given(request)
    given = names.keys() | values.keys()
    if given != used:
        raise invalid(
            f"names and values that are unused or missing: {', '.join(sorted(given ^ used))}",
            operation,
        )


def _stored(item: Mapping[str, Any]) -> StoredItem:
    """The item as it is kept: plain names and well-formed values."""
    stored = {str(name): _checked(name, value) for name, value in item.items()}
    if item_size(stored) > _LARGEST_ITEM:
        raise invalid("Item size has exceeded the maximum allowed size", "PutItem")
    return stored


def _checked(name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    ((kind, content),) = value.items()
    match kind:
        case "S" if isinstance(content, str):
            return {"S": str(content)}
        case "N" if isinstance(content, str) and str(int(content)) == content:
            return value
        case "B" if isinstance(content, bytes):
            return value
        case "BOOL" if isinstance(content, bool):
            return value
        case _:
            raise UnknownSyntax(f"{name} is {value!r}")


def _updated(
    before: Mapping[str, Any],
    change: syntax.Update,
    names: syntax.Names,
    values: syntax.Values,
    table: Table,
) -> StoredItem:
    touched = [names[alias] for alias, _ in change.sets] + [
        names[alias] for alias in change.removes
    ]
    if len(set(touched)) < len(touched):
        raise invalid("Two document paths overlap with each other", "UpdateItem")
    if {table.partition, table.sort} & set(touched):
        raise invalid("Cannot update attribute; this attribute is part of the key", "UpdateItem")
    item = {str(name): value for name, value in before.items()}
    item |= _stored({names[alias]: values[placeholder] for alias, placeholder in change.sets})
    for alias in change.removes:
        item.pop(names[alias], None)
    return item


def _asked_partition(request: Request, attribute: str) -> Any:
    """The partition that a key condition asks for: the value that it sets equal to the partition
    key.
    """
    names, values = _given(request)
    first, _, rest = str(request["KeyConditionExpression"]).partition(" = ")
    if names.get(first) != attribute:
        raise UnknownSyntax(
            f"a key condition that doesn't begin with the partition key {attribute}"
        )
    return values[rest.split()[0]]["S"]


def _place(item: Mapping[str, Any], table: Table, index: Index | None) -> Any:
    """Where an item stands among those of its partition."""
    key = table.key_of(item)
    return key[1] if index is None else (syntax.plain(item[index.sort]), key)


def _page(
    found: Sequence[tuple[Any, StoredItem]], request: Request, table: Table, index: Index | None
) -> Answer:
    limit = request.get("Limit", len(found) + 1)
    if limit < 1:
        raise invalid("Limit must be greater than or equal to 1", "Query")
    read = _up_to_a_megabyte([item for _, item in found[:limit]])
    kept = _filtered(read, request)
    answer: Answer = {"Count": len(kept), "ScannedCount": len(read)}
    if request.get("Select") != "COUNT":
        answer["Items"] = [_projected(item, request) for item in kept]
    # Like DynamoDB: a page that is full says that there may be more, also when there isn't.
    if read and (len(read) == limit or len(read) < len(found)):
        wanted = {table.partition, table.sort} | ({index.partition, index.sort} if index else set())
        answer["LastEvaluatedKey"] = {name: read[-1][name] for name in wanted}
    return answer


def _up_to_a_megabyte(items: Sequence[StoredItem]) -> Sequence[StoredItem]:
    size = 0
    for place, item in enumerate(items):
        size += item_size(item)
        if size > _PAGE_BYTES:
            return items[: place + 1]
    return items


def _filtered(items: Sequence[StoredItem], request: Request) -> Sequence[StoredItem]:
    if "FilterExpression" not in request:
        return items
    names, values = _given(request)
    test = syntax.condition(request["FilterExpression"]).test
    return [item for item in items if test(item, names, values)]


def _projected(item: StoredItem, request: Request) -> dict[str, Any]:
    if "ProjectionExpression" not in request:
        return dict(item)
    names, _ = _given(request)
    wanted = {names[alias] for alias in syntax.projection(request["ProjectionExpression"])}
    return {name: value for name, value in item.items() if name in wanted}
