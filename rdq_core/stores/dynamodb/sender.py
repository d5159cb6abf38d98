"""The one place that sends requests to DynamoDB: each is built once, repeated byte for byte a
bounded number of times, and its refusal is classified.

The invariant: a request that succeeded was carried out exactly as it was first built, however often
it was sent. botocore repeats throttled and broken requests itself; what it gives up on, and
transaction conflicts, which it never repeats, are repeated here with jitter. A write that may have
been carried out stays in doubt, however the attempts after it failed.
"""

import functools
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from rdq_core.engine.ports import Jitter, Sleeper
from rdq_core.errors import StoreFailed, Unavailable
from rdq_core.stores.dynamodb.expressions import expressed
from rdq_core.stores.dynamodb.request_failures import (
    FailureKind,
    RequestFailure,
    denied_action,
    endpoint_of,
    is_refused_locally,
    understand,
    understand_answer,
)
from rdq_core.stores.dynamodb.values import Item, Value

T = TypeVar("T")

MAX_SENDS: Final = 8
BATCH: Final = 25
"""The most items of a BatchWriteItem, and statements of a BatchExecuteStatement."""
_FIRST_PAUSE: Final = 0.025
_LONGEST_PAUSE: Final = 1.0

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
    """A condition did not hold, and nothing was written.

    `row` is the item as it is now, None when there is none. With `in_doubt` an earlier attempt at
    the same request went unanswered, and may even arrive later.
    """

    def __init__(
        self, rows: Mapping[int, Mapping[str, Any] | None], *, in_doubt: bool = False
    ) -> None:
        super().__init__("a condition did not hold")
        self.rows = rows
        self.in_doubt = in_doubt

    @property
    def row(self) -> Mapping[str, Any] | None:
        """The item that the condition of the first part was checked against."""
        return self.rows.get(0) or None


class Refused(Exception):
    """A request failed in a way that sending it again doesn't help. `in_doubt` is about the
    attempts before.
    """

    def __init__(
        self, failure: RequestFailure, error: Exception, *, in_doubt: bool = False
    ) -> None:
        super().__init__(failure.code)
        self.in_doubt = in_doubt
        self.failure = failure
        self.error = error


# -- botocore's own attempts -----------------------------------------------------------------------

_EVENT_ID: Final = "rdq-attempts"
_this_call: Final = threading.local()


def watch_attempts(client: Any) -> None:
    """Learn of every attempt that a boto3 client makes. Repeating this changes nothing.

    A call raises the failure of its last attempt only. When the answer to the first attempt was
    lost and the second was refused, that refusal would otherwise look like another writer's doing.
    """
    client.meta.events.register("needs-retry", _on_attempt, unique_id=_EVENT_ID)


def _on_attempt(
    response: tuple[Any, dict[str, Any]] | None = None,
    caught_exception: Exception | None = None,
    **_event: Any,
) -> None:
    if caught_exception is not None:
        in_doubt = understand(caught_exception).kind.may_have_happened
    elif response is not None:
        # A successful answer may be damaged on its way; botocore then sends the request again, and
        # that attempt may be refused.
        in_doubt = (
            "Error" not in response[1] or understand_answer(response[1]).kind.may_have_happened
        )
    else:
        return
    _this_call.in_doubt = in_doubt or getattr(_this_call, "in_doubt", False)


class RequestRetries:
    """Sends a request again while its failures are transient: with jitter, `max_sends` times at
    most.
    """

    def __init__(self, jitter: Jitter, sleeper: Sleeper, *, max_sends: int = MAX_SENDS) -> None:
        self._max_sends = max_sends
        self._jitter = jitter
        self._sleeper = sleeper
        self._never = threading.Event()

    def send(self, call: Callable[[], T], *, what: Callable[[], str], writes: bool) -> T:
        """The answer of `call`; `what` names the request in errors.

        Raises Refused when repeating doesn't help, StoreFailed when it has not helped.
        """
        in_doubt = False
        for tried in range(self._max_sends):
            # A signal handler may ask for storage's time in the middle of a call, which sends a
            # request of its own: its attempts are not this call's.
            interrupted = getattr(_this_call, "in_doubt", False)
            _this_call.in_doubt = False
            try:
                return call()
            except (ClientError, BotoCoreError) as error:
                failure = understand(error)
                in_doubt = in_doubt or _this_call.in_doubt
                if not failure.kind.is_transient:
                    raise Refused(failure, error, in_doubt=in_doubt) from None
                endpoint = f" at {found}" if (found := endpoint_of(error)) else ""
                if is_refused_locally(error):
                    raise StoreFailed(
                        f"{what()} failed: connection refused{endpoint}",
                        may_have_happened=in_doubt and writes,
                        hint="is the engine running? (rdq local) Else correct AWS_ENDPOINT_URL",
                    ) from None
            finally:
                _this_call.in_doubt = interrupted
            in_doubt = in_doubt or failure.kind.may_have_happened
            if tried + 1 < self._max_sends:
                self.pause(tried, longer=failure.kind is FailureKind.THROTTLED)
        raise StoreFailed(
            f"{what()} failed {self._max_sends} times: {failure.code}{endpoint}",
            may_have_happened=in_doubt and writes,
        )

    def pause(self, tried: int, *, longer: bool) -> None:
        """Wait before the next attempt: twice as long each time, four times that when throttled."""
        longest = min(_FIRST_PAUSE * 2 ** (tried + 2 * longer), _LONGEST_PAUSE)
        # Between half of the longest pause and all of it, so that writers who met once do not meet
        # again.
        self._sleeper.wait(self._never, longest * (1 + self._jitter.fraction()) / 2)


class Sender:
    """Sends requests through a low-level boto3 client; each is sent up to `max_sends` times.

    Raises ConditionFailed, StoreFailed when repeating has not helped, Unavailable when an operator
    has to act, and botocore's own error for a request that is wrong in itself: that is a bug here.
    """

    def __init__(
        self, client: Any, *, jitter: Jitter, sleeper: Sleeper, max_sends: int = MAX_SENDS
    ) -> None:
        self._client = client
        self._retries = RequestRetries(jitter, sleeper, max_sends=max_sends)

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
        """The items of all pages of a query; a page is read when its first item is asked for."""
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

    def update(self, request: dict[str, Any], *, returning: bool = True) -> Item:
        """Send an update built by `update_of`. The whole item afterwards; nothing of it when
        `returning` is False, which saves sending it over the network.
        """
        if returning:
            request = {**request, "ReturnValues": "ALL_NEW"}
        item: Item = self._send("update_item", request).get("Attributes", {})
        return item

    def delete(self, table: str, key: Item, condition: str, values: Mapping[str, Value]) -> None:
        """Delete an item on a condition."""
        self._send("delete_item", conditioned({"TableName": table, "Key": key}, condition, values))

    def transact(self, items: Sequence[dict[str, Any]], *, nonce: str) -> None:
        """Write all of it or nothing.

        DynamoDB recognises a repeated `ClientRequestToken` for ten minutes (TransactWriteItems,
        "Idempotency"). After that the marks in the rows decide whether a refusal was ours.
        """
        token = hashlib.sha256(nonce.encode()).hexdigest()[:32]
        self._send(
            "transact_write_items", {"TransactItems": list(items), "ClientRequestToken": token}
        )

    def put_all(self, table: str, items: Iterable[Item]) -> None:
        """Put items in batches, under keys that no other writer has. Never state rows: a batch has
        no conditions.
        """
        self._write_batches(table, [{"PutRequest": {"Item": item}} for item in items])

    def delete_all(self, table: str, keys: Iterable[Item]) -> None:
        """Delete items in batches."""
        self._write_batches(table, [{"DeleteRequest": {"Key": key}} for key in keys])

    def execute_once(self, statements: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The engine's answer to each PartiQL statement. Sent once; raises what botocore raises."""
        answer = self._client.batch_execute_statement(Statements=list(statements))
        answers: list[dict[str, Any]] = answer["Responses"]
        return answers

    def _write_batches(self, table: str, waiting: list[dict[str, Any]]) -> None:
        for start in range(0, len(waiting), BATCH):
            self._write_batch(table, waiting[start : start + BATCH])

    def _write_batch(self, table: str, batch: list[dict[str, Any]]) -> None:
        # A throttled batch is answered with success and the items that were left out.
        for tried in range(MAX_SENDS):
            answer = self._send("batch_write_item", {"RequestItems": {table: batch}})
            batch = answer.get("UnprocessedItems", {}).get(table, [])
            if not batch:
                return
            self._retries.pause(tried, longer=True)
        raise StoreFailed(
            f"BatchWriteItem on {table} left {len(batch)} items unprocessed", may_have_happened=True
        )

    # -- inside ------------------------------------------------------------------------------------

    def _send(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._retries.send(
                functools.partial(getattr(self._client, operation), **request),
                what=lambda: f"{_ACTIONS[operation]} on {_tables_of(request)}",
                writes=operation not in _READS,
            )
        except Refused as refused:
            raise _error_of(refused, _ACTIONS[operation], request) from None
        return answer


def conditioned(
    request: dict[str, Any], condition: str, values: Mapping[str, Value]
) -> dict[str, Any]:
    """A write on a condition; the refusal carries the item that failed it."""
    return expressed(
        {
            **request,
            "ConditionExpression": condition,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        },
        values,
    )


def update_of(
    table: str,
    key: Item,
    change: tuple[str, Mapping[str, Value]],
    condition: str,
    values: Mapping[str, Value],
) -> dict[str, Any]:
    """An update on a condition: a request by itself, or a part of a transaction."""
    expression, new = change
    request = {"TableName": table, "Key": key, "UpdateExpression": expression}
    return conditioned(request, condition, {**values, **new})


def _error_of(refused: Refused, action: str, request: Mapping[str, Any]) -> Exception:
    if refused.failure.kind is FailureKind.CONDITION:
        return ConditionFailed(refused.failure.rows, in_doubt=refused.in_doubt)
    if refused.failure.kind is FailureKind.UNAVAILABLE:
        return _unavailable(refused, action, _tables_of(request))
    return refused.error


def _tables_of(request: Mapping[str, Any]) -> str:
    if "TableName" in request:
        return str(request["TableName"])
    if "RequestItems" in request:
        return ", ".join(request["RequestItems"])
    named = [part["TableName"] for item in request["TransactItems"] for part in item.values()]
    return ", ".join(dict.fromkeys(named))


def _unavailable(refused: Refused, action: str, tables: str) -> Unavailable:
    code = refused.failure.code
    if code == "ResourceNotFoundException":
        return Unavailable(
            f"table {tables} does not exist", hint="run rdq init locally, or deploy the stack"
        )
    if code.startswith("AccessDenied"):
        missing, resource = denied_action(refused.error) or (f"dynamodb:{action}", tables)
        return Unavailable(
            f"{missing} on {resource or tables} is not allowed",
            hint="give the role one of rdq's policies",
        )
    return Unavailable(
        f"DynamoDB does not accept our credentials: {code}", hint="check the AWS credentials"
    )
