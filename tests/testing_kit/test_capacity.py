"""The meter against ministack, which bills writes by DynamoDB's published rules; and the rules that
it doesn't know.
"""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from benchmarks.capacity import Meter, read_units
from tests.dynamodb import verbs
from tests.dynamodb.billing import Bill
from tests.dynamodb.world import World
from tests.support.engines import Engine

TABLE = "metered"
KEY: dict[str, Any] = {"pk": {"S": "p"}, "sk": {"S": "s"}}
SMALL, LARGE, LARGER = b"x" * 100, b"x" * 3000, b"x" * 7000
Do = Callable[[Any], object]


def a_table(client: Any) -> Any:
    """A table with one index of everything, and one of a few attributes under a key of its own."""
    attributes = [
        {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "kind", "place")
    ]

    def key(*names: str) -> list[dict[str, str]]:
        return [
            {"AttributeName": name, "KeyType": word}
            for name, word in zip(names, ("HASH", "RANGE"), strict=False)
        ]

    client.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=key("pk", "sk"),
        AttributeDefinitions=attributes,
        GlobalSecondaryIndexes=[
            {"IndexName": "all", "KeySchema": key("kind"), "Projection": {"ProjectionType": "ALL"}},
            {
                "IndexName": "some",
                "KeySchema": key("place", "kind"),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["note"]},
            },
        ],
    )
    return client


def put(body: bytes = SMALL, **texts: str) -> Do:
    item = {**KEY, "body": {"B": body}, **{name: {"S": value} for name, value in texts.items()}}
    return lambda client: client.put_item(TableName=TABLE, Item=item)


def update(expression: str, **values: Any) -> Do:
    given = {
        f":{name}": {"B" if isinstance(value, bytes) else "S": value}
        for name, value in values.items()
    }
    request: dict[str, Any] = {"TableName": TABLE, "Key": KEY, "UpdateExpression": expression}
    if given:
        request["ExpressionAttributeValues"] = given
    return lambda client: client.update_item(**request)


def delete(client: Any) -> object:
    return client.delete_item(TableName=TABLE, Key=KEY)


def batch(client: Any) -> object:
    others = [
        {"PutRequest": {"Item": {**KEY, "sk": {"S": name}, "kind": {"S": "k"}}}} for name in "abc"
    ]
    return client.batch_write_item(RequestItems={TABLE: [*others, {"DeleteRequest": {"Key": KEY}}]})


def transaction(client: Any) -> object:
    item = {**KEY, "kind": {"S": "k"}, "place": {"S": "q"}, "body": {"B": LARGE}}
    other = {**KEY, "sk": {"S": "other"}}
    return client.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": TABLE, "Item": item}},
            {"Delete": {"TableName": TABLE, "Key": other}},
        ]
    )


CASES: dict[str, tuple[Do | None, Do]] = {
    "a new item outside of every index": (None, put()),
    "a new item in one index": (None, put(kind="k")),
    "a new item in both": (None, put(kind="k", place="p")),
    "a large item in both": (None, put(LARGE, kind="k", place="p")),
    "growing": (put(kind="k"), put(LARGE, kind="k")),
    "shrinking": (put(LARGE, kind="k", place="p"), put(SMALL, kind="k", place="p")),
    "written again as it is": (put(kind="k", place="p"), put(kind="k", place="p")),
    "an attribute that no entry of the second has": (
        put(kind="k", place="p"),
        update("SET body = :body", body=LARGER),
    ),
    "an attribute that an entry has": (
        put(kind="k", place="p"),
        update("SET note = :note", note="n"),
    ),
    "an entry that grows in place": (
        put(kind="k", place="p"),
        update("SET note = :note", note="n" * 3000),
    ),
    "an index key that changes": (
        put(kind="k", place="p"),
        update("SET place = :place", place="q"),
    ),
    "a key of both indexes": (
        put(LARGE, kind="k", place="p"),
        update("SET kind = :kind", kind="l"),
    ),
    "leaving an index": (put(LARGE, kind="k", place="p"), update("REMOVE place")),
    "entering an index": (put(LARGE, kind="k"), update("SET place = :place", place="p")),
    "a large item's small change": (put(LARGER), update("SET note = :note", note="n")),
    "a deletion": (put(LARGE, kind="k", place="p"), delete),
    "deleting nothing": (None, delete),
    "a batch": (put(LARGE, kind="k"), batch),
    "a transaction": (put(LARGER, kind="k", place="p"), transaction),
}


@pytest.mark.ministack
def test_every_change_of_items_and_index_entries_costs_what_ministack_bills(
    ministack: Engine,
) -> None:
    client = a_table(ministack.dynamodb)
    differing = {}
    for case, (before, act) in CASES.items():
        for kind in ("s", "a", "b", "c", "other"):
            client.delete_item(TableName=TABLE, Key={**KEY, "sk": {"S": kind}})
        if before is not None:
            before(client)
        bill = Bill(client)
        with Meter(client) as meter:
            act(client)
        bill.close()
        if meter.write_units != bill.units:
            differing[case] = (meter.write_units, bill.units)
    assert differing == {}


@pytest.mark.ministack
@pytest.mark.parametrize("prepare", verbs.EVERY, ids=verbs.named)
def test_every_verb_costs_what_ministack_bills(ministack: Engine, prepare: verbs.Prepare) -> None:
    world = World(ministack)
    act = prepare(world)
    bill = Bill(world.client)
    with Meter(world.client) as meter:
        act()
    writes = [charge.operation for charge in meter.charges if charge.write_units]
    assert (meter.write_units, writes) == (bill.units, bill.writes)


@pytest.fixture
def table(moto: Engine) -> Any:
    return a_table(moto.dynamodb)


def refused(call: Callable[..., object], **request: Any) -> None:
    with pytest.raises(ClientError, match="onditional"):
        call(TableName=TABLE, **request)


def test_a_condition_that_fails_costs_the_table_what_the_write_would_have(table: Any) -> None:
    put(LARGE, kind="k", place="p")(table)
    with Meter(table) as meter:
        refused(table.delete_item, Key=KEY, ConditionExpression="attribute_not_exists(pk)")
        refused(
            table.put_item,
            Item={**KEY, "b": {"B": LARGER}},
            ConditionExpression="attribute_not_exists(pk)",
        )
        refused(
            table.delete_item,
            Key={**KEY, "sk": {"S": "none"}},
            ConditionExpression="attribute_exists(pk)",
        )
    assert [charge.write_units for charge in meter.charges] == [3, 7, 1]


def test_reads_cost_by_what_was_read_and_not_by_what_is_answered(table: Any) -> None:
    put(LARGER, kind="k", place="p")(table)
    query: dict[str, Any] = {
        "TableName": TABLE,
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": "p"}},
    }
    with Meter(table) as meter:
        table.get_item(TableName=TABLE, Key=KEY, ConsistentRead=True)
        table.get_item(TableName=TABLE, Key=KEY)
        table.get_item(TableName=TABLE, Key={**KEY, "sk": {"S": "none"}}, ConsistentRead=True)
        table.query(**query, ConsistentRead=True, Select="COUNT")
        table.query(
            **query,
            FilterExpression="attribute_exists(#n)",
            ExpressionAttributeNames={"#n": "none"},
        )
        table.scan(TableName=TABLE, ProjectionExpression="pk")
    assert [charge.read_units for charge in meter.charges] == [2, 1, 1, 2, 1, 1]


def test_an_empty_query_costs_half_a_unit() -> None:
    assert (read_units(0, consistent=False), read_units(4097, consistent=True)) == (0.5, 2)


def test_a_request_that_the_meter_has_no_rule_for_is_not_taken_for_free(table: Any) -> None:
    with Meter(table), pytest.raises(NotImplementedError, match="BatchGetItem"):
        table.batch_get_item(RequestItems={TABLE: {"Keys": [KEY]}})
