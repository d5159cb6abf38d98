"""Faults happen to the chosen request, once, and exactly as a network or DynamoDB would have
them.
"""

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from botocore.endpoint import Endpoint
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from rdq_core.testing.faults import FaultScript, LosesAnswer, LosesRequest, Rejects, Request
from tests.support.engines import Engine
from tests.testing_kit.tables import a_table, keys, put

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture
def client(engine: Engine) -> "DynamoDBClient":
    return engine.dynamodb


@pytest.fixture
def table(client: "DynamoDBClient") -> str:
    return a_table(client)


def test_botocore_sends_through_the_method_that_scripts_wrap() -> None:
    assert list(inspect.signature(vars(Endpoint)["_do_get_response"]).parameters) == [
        "self",
        "request",
        "operation_model",
        "context",
    ]


def test_a_lost_request_is_not_carried_out(client: "DynamoDBClient", table: str) -> None:
    with FaultScript(client) as faults:
        faults.lose_request("PutItem")
        with pytest.raises(EndpointConnectionError):
            put(client, table, "first")
        put(client, table, "second")

    assert keys(client, table) == {"second"}


def test_a_request_whose_answer_is_lost_is_carried_out(
    client: "DynamoDBClient", table: str
) -> None:
    with FaultScript(client) as faults:
        faults.lose_answer("PutItem", nth=2)
        put(client, table, "first")
        with pytest.raises(ReadTimeoutError):
            put(client, table, "second")

    assert keys(client, table) == {"first", "second"}


def test_a_lost_request_can_look_like_a_lost_answer(client: "DynamoDBClient", table: str) -> None:
    with FaultScript(client) as faults:
        faults.lose_request(error=ReadTimeoutError)
        with pytest.raises(ReadTimeoutError):
            put(client, table, "first")

    assert keys(client, table) == set()


def test_a_rejected_request_is_not_carried_out(client: "DynamoDBClient", table: str) -> None:
    with FaultScript(client) as faults:
        faults.reject("ProvisionedThroughputExceededException", "PutItem")
        with pytest.raises(client.exceptions.ProvisionedThroughputExceededException) as caught:
            put(client, table, "first")

    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert keys(client, table) == set()


def test_botocore_retries_what_it_would_retry(engine: Engine, table: str) -> None:
    client = engine.client("dynamodb", attempts=2)
    with FaultScript(client) as faults:
        faults.reject("InternalServerError")
        put(client, table, "first")

    assert (faults.count(), keys(client, table)) == (2, {"first"})


def put_twice(client: "DynamoDBClient", table: str) -> None:
    """A transaction that fails, because its second item exists."""
    condition = "attribute_not_exists(pk)"
    client.transact_write_items(
        TransactItems=[
            {
                "Put": {
                    "TableName": table,
                    "Item": {"pk": {"S": key}},
                    "ConditionExpression": condition,
                }
            }
            for key in ("new", "there")
        ]
    )


def shape(value: object) -> object:
    """The keys and types of a parsed response, without its values, and without what the engines
    disagree on.
    """
    match value:
        case dict():
            left_out = {"HTTPHeaders", "RetryAttempts"} | (
                {"Message"} if "Error" in value else set()
            )
            return {key: shape(item) for key, item in value.items() if key not in left_out}
        case list():
            return [shape(item) for item in value]
        case _:
            return type(value)


def test_a_cancelled_transaction_looks_like_a_real_one(
    client: "DynamoDBClient", table: str
) -> None:
    put(client, table, "there")
    with pytest.raises(ClientError) as real:
        put_twice(client, table)

    with FaultScript(client) as faults:
        faults.reject("TransactionCanceledException", reasons=[None, "ConditionalCheckFailed"])
        with pytest.raises(client.exceptions.TransactionCanceledException) as scripted:
            put_twice(client, table)

    assert shape(scripted.value.response) == shape(real.value.response)
    assert scripted.value.response["Error"] == real.value.response["Error"]
    assert keys(client, table) == {"there"}


def test_a_failed_condition_gives_the_item_that_the_script_names(
    client: "DynamoDBClient", table: str
) -> None:
    with FaultScript(client) as faults:
        faults.add(Rejects("ConditionalCheckFailedException", item={"pk": {"S": "there"}}))
        with pytest.raises(client.exceptions.ConditionalCheckFailedException) as caught:
            put(client, table, "there")

    assert caught.value.response.get("Item") == {"pk": {"S": "there"}}


@pytest.mark.parametrize(("when", "seen"), [("before", {"theirs"}), ("after", {"ours", "theirs"})])
def test_somebody_else_acts_at_the_chosen_request(
    client: "DynamoDBClient", table: str, when: Any, seen: set[str]
) -> None:
    found: list[set[str]] = []

    def intrude() -> None:
        put(client, table, "theirs")
        found.append(keys(client, table))

    with FaultScript(client) as faults:
        faults.interleave(intrude, "PutItem", at=1, when=when)
        put(client, table, "ours")

    assert (found, faults.count()) == ([seen], 1)


def test_an_interleaved_crash_reaches_the_caller(client: "DynamoDBClient", table: str) -> None:
    class Killed(BaseException):
        """Nothing that `except Exception` would catch."""

    def die() -> None:
        raise Killed

    with FaultScript(client) as faults:
        faults.interleave(die, at=2, when="after")
        put(client, table, "first")
        with pytest.raises(Killed):
            put(client, table, "second")

    assert keys(client, table) == {"first", "second"}


def test_each_rule_counts_the_requests_that_match_it(client: "DynamoDBClient", table: str) -> None:
    def is_second(request: Request) -> bool:
        return bool(request.params["Item"]["pk"]["S"] == "second")

    with FaultScript(client) as faults:
        faults.lose_request("PutItem", where=is_second)
        faults.lose_request("Scan", nth=1, times=2)
        put(client, table, "first")
        with pytest.raises(EndpointConnectionError):
            put(client, table, "second")
        for _ in range(2):
            with pytest.raises(EndpointConnectionError):
                keys(client, table)
        assert keys(client, table) == {"first"}


def test_a_dead_network_stays_dead(client: "DynamoDBClient", table: str) -> None:
    with FaultScript(client) as faults:
        faults.lose_request(nth=2, times=None)
        put(client, table, "first")
        for _ in range(3):
            with pytest.raises(EndpointConnectionError):
                put(client, table, "second")

    assert keys(client, table) == {"first"}


def test_every_request_is_recorded_with_its_parameters(
    client: "DynamoDBClient", table: str
) -> None:
    with FaultScript(client) as faults:
        put(client, table, "first")
        keys(client, table)
    put(client, table, "after the script")

    assert [(request.number, request.operation) for request in faults.requests] == [
        (1, "PutItem"),
        (2, "Scan"),
    ]
    assert faults.requests[0].params["Item"] == {"pk": {"S": "first"}}
    assert faults.count("Scan") == 1


def test_a_lost_request_and_an_interleaving_meet_at_one_request(
    client: "DynamoDBClient", table: str
) -> None:
    with FaultScript(client) as faults:
        faults.interleave(lambda: put(client, table, "theirs"))
        faults.add(LosesRequest())
        faults.add(LosesAnswer(), nth=2)
        with pytest.raises(EndpointConnectionError):
            put(client, table, "ours")

    assert keys(client, table) == {"theirs"}


def test_one_client_has_one_script_at_a_time(client: "DynamoDBClient") -> None:
    with FaultScript(client), pytest.raises(RuntimeError, match="already"), FaultScript(client):
        pass


def test_ordinals_count_from_one(client: "DynamoDBClient") -> None:
    with pytest.raises(ValueError, match="counts from 1"):
        FaultScript(client).lose_answer(nth=0)
