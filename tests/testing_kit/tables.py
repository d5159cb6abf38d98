"""A table of the simplest kind, for tests of the kit itself."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def a_table(client: "DynamoDBClient", name: str = "things") -> str:
    """Create a table with the key `pk` alone, and return its name."""
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return name


def put(client: "DynamoDBClient", table: str, key: str) -> None:
    """Put an item with this key, in the place of the one there may be."""
    client.put_item(TableName=table, Item={"pk": {"S": key}})


def put_new(client: "DynamoDBClient", table: str, key: str) -> None:
    """Put an item with this key, unless there is one."""
    client.put_item(
        TableName=table, Item={"pk": {"S": key}}, ConditionExpression="attribute_not_exists(pk)"
    )


def keys(client: "DynamoDBClient", table: str) -> set[str]:
    """Every key in the table."""
    return {item["pk"]["S"] for item in client.scan(TableName=table, ConsistentRead=True)["Items"]}
