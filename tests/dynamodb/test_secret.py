"""The key of page cursors on DynamoDB: two who find none at the same time end up with the same."""

import pytest

from rdq_core.errors import CorruptItem
from rdq_core.testing.faults import FaultScript
from tests.support.engines import Engine
from tests.support.stores import TABLES, dynamo_on

KEY = {"pk": {"S": "secret#cursor"}, "sk": {"S": "key"}}


def test_of_two_who_find_no_key_one_makes_it(moto: Engine) -> None:
    dynamo = dynamo_on(moto)
    client, others = moto.dynamodb, dynamo.cursor_key()
    made: list[bytes] = []
    with FaultScript(client) as script:
        script.interleave(lambda: made.append(others.key()), at=2)
        mine = dynamo.cursor_key(client).key()

    assert [mine] == made == [dynamo.cursor_key().key()]


@pytest.mark.parametrize("value", [{"B": b"short"}, {"B": b""}])
def test_a_key_that_was_edited_by_hand_is_told_and_not_used(
    moto: Engine, value: dict[str, bytes]
) -> None:
    dynamo = dynamo_on(moto)
    moto.dynamodb.put_item(TableName=TABLES.control, Item={**KEY, "secret": value})

    with pytest.raises(CorruptItem, match="page cursors"):
        dynamo.cursor_key().key()
