"""The shipped SAM template under its own roles, deployed by one call: from submit to redrive, and
who is refused.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from rdq_core import Rdq, Status
from rdq_core.errors import Unavailable
from rdq_core.runtime.function_url import ALIAS
from tests.e2e.stack import EVERY, PATIENCE, Actor, Stack
from tests.engine.world import until

pytestmark = [pytest.mark.ministack, pytest.mark.slow]

QUEUE = "billing"


@pytest.fixture(scope="module")
def actors(deployed: Stack) -> dict[str, Actor]:
    """Somebody in each role."""
    return {
        role: deployed.acting_as(role) for role in ("submitter", "sweeper", "operator", "reader")
    }


def submit(rdq: Rdq, order: str) -> str:
    return rdq.submit(QUEUE, "charge", {"id": order}, key=order).id


def ends(rdq: Rdq, task_id: str, status: Status) -> None:
    until(lambda: rdq.get(task_id).status is status, patience=PATIENCE, every=EVERY)


def test_from_a_submit_to_a_redrive(
    deployed: Stack, actors: dict[str, Actor], effects: Path
) -> None:
    rdq = actors["submitter"].rdq
    good, flaky, poison = (submit(rdq, order) for order in ("good", "flaky", "poison"))
    ends(rdq, good, Status.SUCCEEDED)
    ends(rdq, flaky, Status.SUCCEEDED)
    ends(rdq, poison, Status.DEAD)
    assert [len(rdq.get(task_id).attempts) for task_id in (good, flaky, poison)] == [1, 2, 2]
    assert rdq.result(good).output == {"charged": "good"}

    operator = actors["operator"]
    (dead,) = operator.ask(op="dlq.list", queue=QUEUE)["items"]
    assert dead["id"] == poison
    (effects / "mended").touch()
    done = operator.ask(
        op="dlq.redrive", queue=QUEUE, ids=[poison], reason="the account is there now"
    )
    assert done["done"] == 1
    ends(rdq, poison, Status.SUCCEEDED)

    # Only a scheduled sweep measures the queues.
    until(lambda: '"dlq_depth"' in deployed.told("sweeper"), patience=PATIENCE, every=EVERY)
    told = deployed.told("sweeper")
    assert all(
        f'"{metric}"' in told for metric in ("success_after_retry", "dead_lettered", "lateness_ms")
    )
    assert '"service":"rdq-prod"' in told.replace(" ", "")


def test_a_reader_looks_and_the_audit_is_on_record(actors: dict[str, Actor]) -> None:
    rdq = actors["reader"].rdq
    assert rdq.get(queue=QUEUE, key="poison").status in set(Status)
    records = actors["operator"].ask(op="audit.list", queue=QUEUE)["items"]
    assert "dlq.redrive" in {each["operation"] for each in records}


def refused(call: Any, **request: Any) -> bool:
    with pytest.raises(ClientError) as denied:
        call(**request)
    code = denied.value.response["Error"]["Code"]
    assert code.startswith("AccessDenied"), code
    return True


def test_a_submitter_is_kept_from_the_dlq(deployed: Stack, actors: dict[str, Actor]) -> None:
    actor, dlq = actors["submitter"], deployed.tables.dlq
    key = {"task_id": {"S": "1"}, "kind": {"S": "D"}}
    dynamodb = actor.client("dynamodb")
    listing = {
        "KeyConditionExpression": "queue_shard = :q",
        "ExpressionAttributeValues": {":q": {"S": "billing#00"}},
    }
    assert refused(dynamodb.query, TableName=dlq, IndexName="dead", **listing)
    assert refused(dynamodb.get_item, TableName=dlq, Key=key)
    assert refused(dynamodb.delete_item, TableName=dlq, Key=key)
    assert refused(dynamodb.scan, TableName=dlq)
    ops = deployed.outputs["OpsFunctionName"]
    assert refused(
        actor.client("lambda").invoke, FunctionName=ops, Payload=json.dumps({"op": "status"})
    )


def test_a_reader_writes_nothing(deployed: Stack, actors: dict[str, Actor]) -> None:
    actor, tables = actors["reader"], deployed.tables
    with pytest.raises(Unavailable, match="dynamodb:PutItem"):
        actor.rdq.submit(QUEUE, "charge", {"id": "reader"})
    item = {"task_id": {"S": "1"}, "kind": {"S": "T"}}
    dynamodb = actor.client("dynamodb")
    for table in (tables.tasks, tables.dlq):
        assert refused(dynamodb.put_item, TableName=table, Item=item)
        assert refused(dynamodb.delete_item, TableName=table, Key=item)
    control = {"pk": {"S": "queues"}, "sk": {"S": "billing"}}
    assert refused(dynamodb.put_item, TableName=tables.control, Item=control)
    assert refused(actor.client("lambda").invoke, FunctionName=deployed.outputs["OpsFunctionName"])


def test_the_url_that_the_stack_puts_out_is_the_alias_s(deployed: Stack) -> None:
    ops = deployed.outputs["OpsFunctionName"]
    found = deployed.account.client("lambda").get_function_url_config(
        FunctionName=ops, Qualifier=ALIAS
    )
    assert (found["FunctionUrl"], found["AuthType"]) == (
        deployed.outputs["OpsFunctionUrl"],
        "AWS_IAM",
    )


def test_a_sweeper_reads_no_audit(deployed: Stack, actors: dict[str, Actor]) -> None:
    dynamodb, audit = actors["sweeper"].client("dynamodb"), deployed.tables.audit
    key = {"pk": {"S": "billing#202611"}, "sk": {"S": "1"}}
    assert refused(dynamodb.get_item, TableName=audit, Key=key)
    assert refused(dynamodb.scan, TableName=audit)
    listing = {
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "billing#202611"}},
    }
    assert refused(dynamodb.query, TableName=audit, **listing)


@pytest.mark.parametrize("role", ["submitter", "sweeper", "operator", "reader"])
def test_nobody_changes_the_audit(deployed: Stack, actors: dict[str, Actor], role: str) -> None:
    dynamodb, audit = actors[role].client("dynamodb"), deployed.tables.audit
    key = {"pk": {"S": "billing#202611"}, "sk": {"S": "1"}}
    assert refused(dynamodb.delete_item, TableName=audit, Key=key)
    change = {"UpdateExpression": "SET #r = :r", "ExpressionAttributeNames": {"#r": "reason"}}
    assert refused(
        dynamodb.update_item,
        TableName=audit,
        Key=key,
        **change,
        ExpressionAttributeValues={":r": {"S": "-"}},
    )
