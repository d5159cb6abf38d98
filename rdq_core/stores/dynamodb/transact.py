"""The one place that sends requests: built once, repeated byte for byte, refusals read, patience
bounded.

The invariant: a request that comes back as done was carried out exactly as it was first built,
however often it was sent. botocore repeats throttled and broken requests by itself; what is left
over, and transaction conflicts, which it leaves alone, are repeated here, with jitter.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from rdq_core.engine.ports import Jitter, Sleeper
from rdq_core.errors import StoreFailed, Unavailable
from rdq_core.stores.dynamodb.endpoint import endpoint_of, nobody_listens
from rdq_core.stores.dynamodb.expressions import expressed
from rdq_core.stores.dynamodb.faults import Fault, Kind, denied, understand
from rdq_core.stores.dynamodb.tries import watched
from rdq_core.stores.dynamodb.values import Item, Value

T = TypeVar("T")

MAX_TRIES: Final = 8
_FIRST_PAUSE: Final = 0.025
_LONGEST_PAUSE: Final = 1.0
BATCH: Final = 25
"""The most items or statements of one request."""
_START_IT: Final = "start the engine (rdq local), or mend AWS_ENDPOINT_URL"

_ACTIONS: Final = {
    "get_item": "GetItem",
    "query": "Query",
    "scan": "Scan",
    "put_item": "PutItem",
    "update_item": "UpdateItem",
    "delete_item": "DeleteItem",
    "batch_write_item": "BatchWriteItem",
    "transact_write_items": "TransactWriteItems",
}
_READS: Final = frozenset({"get_item", "query", "scan"})


class ConditionFailed(Exception):
    """A condition did not hold, and nothing was written. `row` is the item as it is now, None when
    there is none.

    With `in_doubt`, nobody knows what became of an earlier try of the same request: it may even
    arrive later on.
    """

    def __init__(
        self, rows: Mapping[int, Mapping[str, Any] | None], *, in_doubt: bool = False
    ) -> None:
        super().__init__("a condition did not hold")
        self.rows = rows
        self.in_doubt = in_doubt

    @property
    def row(self) -> Mapping[str, Any] | None:
        """The item that the condition of the first part was held against."""
        return self.rows.get(0) or None


class Refused(Exception):
    """A request failed in a way that sending it again doesn't help. `in_doubt` is what came of the
    tries before.
    """

    def __init__(self, fault: Fault, error: Exception, *, in_doubt: bool = False) -> None:
        super().__init__(fault.code)
        self.in_doubt = in_doubt
        self.fault = fault
        self.error = error


class Patience:
    """Sends a request again while its failures pass, with jitter, a bounded number of times."""

    def __init__(self, jitter: Jitter, sleeper: Sleeper, *, tries: int = MAX_TRIES) -> None:
        self._tries = tries
        self._jitter = jitter
        self._sleeper = sleeper
        self._never = threading.Event()

    def send(self, call: Callable[[], T], *, what: str, writes: bool) -> T:
        """The answer. Raises Refused when trying again doesn't help, StoreFailed when it has not
        helped.
        """
        may_have_happened = False
        for tried in range(self._tries):
            try:
                with watched() as own_tries:
                    return call()
            except (ClientError, BotoCoreError) as error:
                fault = understand(error)
                may_have_happened = may_have_happened or own_tries.in_doubt
                if not fault.kind.is_worth_another_try:
                    raise Refused(fault, error, in_doubt=may_have_happened) from None
                place = f" at {found}" if (found := endpoint_of(error)) else ""
                if nobody_listens(error):
                    raise StoreFailed(
                        f"{what} failed: nobody listens{place}",
                        may_have_happened=may_have_happened and writes,
                        hint=_START_IT,
                    ) from None
            may_have_happened = may_have_happened or fault.kind.may_have_happened
            if tried + 1 < self._tries:
                self.pause(tried, longer=fault.kind is Kind.THROTTLED)
        raise StoreFailed(
            f"{what} failed {self._tries} times: {fault.code}{place}",
            may_have_happened=may_have_happened and writes,
        )

    def pause(self, tried: int, *, longer: bool) -> None:
        """Wait before the next try, longer each time, and longer still when there is too much at
        once.
        """
        longest = min(_FIRST_PAUSE * 2 ** (tried + 2 * longer), _LONGEST_PAUSE)
        # Anywhere from nothing to the longest: contenders that met once don't meet again.
        self._sleeper.wait(self._never, longest * (1 + self._jitter.fraction()) / 2)


class Sender:
    """Sends requests to DynamoDB through a low-level boto3 client.

    Raises ConditionFailed, StoreFailed when patience is at its end, Unavailable when only a person
    can help, and botocore's own error where the request itself is wrong, which is a bug of ours.
    `tries` bounds its patience.
    """

    def __init__(
        self, client: Any, *, jitter: Jitter, sleeper: Sleeper, tries: int = MAX_TRIES
    ) -> None:
        self._client = client
        self._patience = Patience(jitter, sleeper, tries=tries)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, table: str, key: Item) -> Item | None:
        """One item, read consistently; None when there is none."""
        answer = self._send("get_item", {"TableName": table, "Key": key, "ConsistentRead": True})
        return answer.get("Item") or None

    def query(self, request: dict[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
        """One page of a query."""
        return self._send("query", expressed(request, values))

    def scan(self, request: dict[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
        """One page of a scan."""
        return self._send("scan", expressed(request, values))

    def query_all(self, request: dict[str, Any], values: Mapping[str, Value]) -> Iterator[Item]:
        """What is on all the pages of a query, read as it is asked for."""
        while True:
            page = self.query(request, values)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request = {**request, "ExclusiveStartKey": page["LastEvaluatedKey"]}

    # -- writing -----------------------------------------------------------------------------------

    def put(self, table: str, item: Item, condition: str, values: Mapping[str, Value]) -> None:
        """Put an item on a condition."""
        self._send("put_item", conditioned({"TableName": table, "Item": item}, condition, values))

    def update(self, request: dict[str, Any]) -> Item:
        """Update an item as `update_of` says it; the whole item afterwards."""
        answer = self._send("update_item", {**request, "ReturnValues": "ALL_NEW"})
        item: Item = answer.get("Attributes", {})
        return item

    def change(self, request: dict[str, Any]) -> None:
        """Update an item as `update_of` says it. Nobody needs to know the rest of it, so it needn't
        travel.
        """
        self._send("update_item", request)

    def transact(self, items: Sequence[dict[str, Any]], *, nonce: str) -> None:
        """Write all of it or nothing. DynamoDB remembers `nonce` for ten minutes; after that the
        row's marks decide.
        """
        token = hashlib.sha256(nonce.encode()).hexdigest()[:32]
        self._send(
            "transact_write_items", {"TransactItems": list(items), "ClientRequestToken": token}
        )

    def delete(self, table: str, key: Item, condition: str, values: Mapping[str, Value]) -> None:
        """Delete an item on a condition."""
        self._send("delete_item", conditioned({"TableName": table, "Key": key}, condition, values))

    def put_all(self, table: str, items: Iterable[Item]) -> None:
        """Put items whose keys nobody else has; in batches, what is left unprocessed again. Never
        state rows.
        """
        self._batches(table, [{"PutRequest": {"Item": item}} for item in items])

    def delete_all(self, table: str, keys: Iterable[Item]) -> None:
        """Delete items of which nobody needs the old content; in batches, what is left unprocessed
        again.
        """
        self._batches(table, [{"DeleteRequest": {"Key": key}} for key in keys])

    def execute_once(self, statements: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The engine's answer to each PartiQL statement. Sent once, and raising whatever it likes:
        see Inserts.
        """
        answer = self._client.batch_execute_statement(Statements=list(statements))
        answers: list[dict[str, Any]] = answer["Responses"]
        return answers

    def _batches(self, table: str, waiting: list[dict[str, Any]]) -> None:
        while waiting:
            batch, waiting = waiting[:BATCH], waiting[BATCH:]
            self._batch(table, batch)

    def _batch(self, table: str, batch: list[dict[str, Any]]) -> None:
        for tried in range(MAX_TRIES):
            answer = self._send("batch_write_item", {"RequestItems": {table: batch}})
            batch = answer.get("UnprocessedItems", {}).get(table, [])
            if not batch:
                return
            self._patience.pause(tried, longer=True)
        raise StoreFailed(
            f"BatchWriteItem on {table} left {len(batch)} items unprocessed", may_have_happened=True
        )

    # -- inside ------------------------------------------------------------------------------------

    def _send(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        call = getattr(self._client, operation)
        action, tables = _ACTIONS[operation], _tables(request)
        try:
            answer: dict[str, Any] = self._patience.send(
                lambda: call(**request),
                what=f"{action} on {tables}",
                writes=operation not in _READS,
            )
        except Refused as refused:
            raise _final(refused, action, tables) from None
        return answer


def conditioned(
    request: dict[str, Any], condition: str, values: Mapping[str, Value]
) -> dict[str, Any]:
    """A write on a condition, which gives the item back when the condition fails."""
    whole = {
        **request,
        "ConditionExpression": condition,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    return expressed(whole, values)


def update_of(
    table: str,
    key: Item,
    change: tuple[str, Mapping[str, Value]],
    condition: str,
    values: Mapping[str, Value],
) -> dict[str, Any]:
    """An update on a condition, as a request by itself or as a part of a transaction."""
    expression, new = change
    request = {"TableName": table, "Key": key, "UpdateExpression": expression}
    return conditioned(request, condition, {**values, **new})


def _final(refused: Refused, action: str, tables: str) -> Exception:
    if refused.fault.kind is Kind.CONDITION:
        return ConditionFailed(refused.fault.rows, in_doubt=refused.in_doubt)
    if refused.fault.kind is Kind.UNAVAILABLE:
        return _unavailable(refused, action, tables)
    return refused.error


def _tables(request: Mapping[str, Any]) -> str:
    if "TableName" in request:
        return str(request["TableName"])
    if "RequestItems" in request:
        return ", ".join(request["RequestItems"])
    named = [part["TableName"] for item in request["TransactItems"] for part in item.values()]
    return ", ".join(dict.fromkeys(named))


def _unavailable(refused: Refused, action: str, tables: str) -> Unavailable:
    code = refused.fault.code
    if code == "ResourceNotFoundException":
        return Unavailable(
            f"table {tables} does not exist", hint="run rdq init locally, or deploy the stack"
        )
    if code.startswith("AccessDenied"):
        missing, place = denied(refused.error) or (f"dynamodb:{action}", tables)
        return Unavailable(
            f"{missing} on {place or tables} is not allowed",
            hint="give the role one of rdq's policies",
        )
    return Unavailable(
        f"DynamoDB does not accept our credentials: {code}", hint="check the AWS credentials"
    )
