"""The strict double: what it refuses, and what it can do that moto can't. The contract shows that
it is right.
"""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from rdq_core.stores.dynamodb.schema import Tables, definitions
from tests.support.fake_dynamodb import Database, FakeClient
from tests.support.fake_dynamodb.syntax import UnknownSyntax

KEY: dict[str, Any] = {"task_id": {"S": "a"}, "kind": {"S": "T"}}
NAMES = {"#kind": "kind"}
NEW = {"ConditionExpression": "attribute_not_exists(#kind)", "ExpressionAttributeNames": NAMES}
THERE = {"ConditionExpression": "attribute_exists(#kind)", "ExpressionAttributeNames": NAMES}
DUE = {
    "TableName": "tasks",
    "IndexName": "due",
    "KeyConditionExpression": "#queue_shard = :q",
    "ExpressionAttributeNames": {"#queue_shard": "queue_shard"},
    "ExpressionAttributeValues": {":q": {"S": "q#00"}},
}


class Clock:
    now = 0.0
    lag = 0.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(clock: Clock) -> FakeClient:
    database = Database(now=lambda: clock.now, lag=lambda: clock.lag)
    for definition in definitions(Tables("tasks", "dlq", "control", "audit")).values():
        database.create_table(**definition)
    return FakeClient(database)


def put(client: FakeClient, **attributes: Any) -> None:
    client.put_item(TableName="tasks", Item={**KEY, **attributes})


def due(client: FakeClient) -> list[Any]:
    found: list[Any] = client.query(**DUE)["Items"]
    return found


def code_of(refused: pytest.ExceptionInfo[ClientError]) -> str:
    return str(refused.value.response["Error"]["Code"])


@pytest.mark.parametrize(
    "condition",
    [
        "contains(#kind, :a)",
        "kind = :a",
        "#kind.#kind = :a",
        "size(#kind) = :a",
        "NOT #kind = :a",
        "#kind = :a AND",
        "#kind = :a)",
        "#kind IN ()",
        "#kind ! :a",
    ],
)
def test_what_it_does_not_know_it_does_not_guess(client: FakeClient, condition: str) -> None:
    with pytest.raises(UnknownSyntax):
        client.put_item(
            TableName="tasks",
            Item=KEY,
            ConditionExpression=condition,
            ExpressionAttributeNames=NAMES,
        )


@pytest.mark.parametrize(
    "update", ["ADD #n :n", "SET #n = #n + :n", "SET #n = if_not_exists(#n, :n)", "DELETE #n :n"]
)
def test_updates_of_other_kinds_are_refused(client: FakeClient, update: str) -> None:
    with pytest.raises(UnknownSyntax):
        client.update_item(TableName="tasks", Key=KEY, UpdateExpression=update, **THERE)


def test_an_update_without_a_condition_is_refused(client: FakeClient) -> None:
    with pytest.raises(UnknownSyntax, match="without a condition"):
        client.update_item(TableName="tasks", Key=KEY, UpdateExpression="REMOVE #kind")


def test_reads_that_are_not_consistent_are_refused(client: FakeClient) -> None:
    with pytest.raises(UnknownSyntax):
        client.get_item(TableName="tasks", Key=KEY)
    with pytest.raises(ClientError) as refused:
        client.query(**DUE, ConsistentRead=True)
    assert code_of(refused) == "ValidationException"


@pytest.mark.parametrize("names", [{"#kind": "kind", "#more": "more"}, {}])
def test_names_that_are_unused_or_missing_are_refused(
    client: FakeClient, names: dict[str, str]
) -> None:
    with pytest.raises(ClientError) as refused:
        client.put_item(TableName="tasks", Item=KEY, **{**NEW, "ExpressionAttributeNames": names})
    assert code_of(refused) == "ValidationException"


def test_a_key_is_never_changed(client: FakeClient) -> None:
    put(client)
    with pytest.raises(ClientError) as refused:
        client.update_item(TableName="tasks", Key=KEY, UpdateExpression="REMOVE #kind", **THERE)
    assert code_of(refused) == "ValidationException"


def test_a_failed_condition_brings_the_item_back_where_it_is_asked_for(client: FakeClient) -> None:
    put(client, v={"N": "1"})
    with pytest.raises(ClientError) as refused:
        client.put_item(
            TableName="tasks", Item=KEY, ReturnValuesOnConditionCheckFailure="ALL_OLD", **NEW
        )
    assert (code_of(refused), refused.value.response["Item"]) == (  # type: ignore[typeddict-item]
        "ConditionalCheckFailedException",
        {**KEY, "v": {"N": "1"}},
    )


def test_a_transaction_is_carried_out_whole_or_not_at_all(client: FakeClient) -> None:
    other = {**KEY, "kind": {"S": "D"}}
    parts = [
        {"Put": {"TableName": "dlq", "Item": other}},
        {"Put": {"TableName": "tasks", "Item": KEY, **THERE}},
    ]
    with pytest.raises(ClientError) as refused:
        client.transact_write_items(TransactItems=parts, ClientRequestToken="a")
    reasons: Any = refused.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    assert client.get_item(TableName="dlq", Key=other, ConsistentRead=True) == {}


def test_a_check_decides_over_a_transaction_and_changes_nothing(client: FakeClient) -> None:
    other = {**KEY, "kind": {"S": "D"}}
    absent = {"ConditionCheck": {"TableName": "dlq", "Key": other, **NEW}}
    present = {"ConditionCheck": {"TableName": "dlq", "Key": other, **THERE}}
    new = {"Put": {"TableName": "tasks", "Item": KEY, **NEW}}
    client.transact_write_items(TransactItems=[new, absent], ClientRequestToken="a")
    assert client.get_item(TableName="tasks", Key=KEY, ConsistentRead=True) == {"Item": KEY}
    with pytest.raises(ClientError):
        client.transact_write_items(
            TransactItems=[{"Put": {"TableName": "tasks", "Item": other}}, present],
            ClientRequestToken="b",
        )
    assert client.get_item(TableName="tasks", Key=other, ConsistentRead=True) == {}
    assert client.get_item(TableName="dlq", Key=other, ConsistentRead=True) == {}


def test_a_repeated_transaction_is_known_by_its_token_for_ten_minutes(
    client: FakeClient, clock: Clock
) -> None:
    parts = [{"Put": {"TableName": "tasks", "Item": KEY, **NEW}}]
    client.transact_write_items(TransactItems=parts, ClientRequestToken="a")
    client.transact_write_items(TransactItems=parts, ClientRequestToken="a")
    clock.now = 601
    with pytest.raises(ClientError):
        client.transact_write_items(TransactItems=parts, ClientRequestToken="a")


def test_one_token_is_for_one_transaction(client: FakeClient) -> None:
    client.transact_write_items(
        TransactItems=[{"Put": {"TableName": "tasks", "Item": KEY, **NEW}}], ClientRequestToken="a"
    )
    with pytest.raises(ClientError) as refused:
        client.transact_write_items(
            TransactItems=[{"Put": {"TableName": "tasks", "Item": KEY, **THERE}}],
            ClientRequestToken="a",
        )
    assert code_of(refused) == "IdempotentParameterMismatchException"


def test_an_index_shows_how_things_were_a_while_ago(client: FakeClient, clock: Clock) -> None:
    clock.now = 10
    put(client, queue_shard={"S": "q#00"}, due_at={"N": "5"}, p={"S": "not projected"})
    clock.now = 20
    put(client, queue_shard={"S": "q#00"}, due_at={"N": "7"})
    clock.lag = 5
    assert [item["due_at"]["N"] for item in due(client)] == ["5"]
    clock.now = 25
    assert due(client) == [{**KEY, "queue_shard": {"S": "q#00"}, "due_at": {"N": "7"}}]


def test_what_lacks_a_key_of_the_index_is_not_in_it(client: FakeClient) -> None:
    put(client, queue_shard={"S": "q#00"})
    assert due(client) == []
