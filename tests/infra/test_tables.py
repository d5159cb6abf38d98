"""The template's tables are those that the store works on."""

from typing import Any, Final

import pytest

from rdq_core.stores.dynamodb.claim_check import LIFETIMES, UNEXPIRING
from rdq_core.stores.dynamodb.schema import Attr, Tables, definitions
from tests.infra.templates import Template, as_list, of_type

FIELDS: Final = {
    "TasksTable": "tasks",
    "DlqTable": "dlq",
    "ControlTable": "control",
    "AuditTable": "audit",
}
SAME: Final = ("BillingMode", "KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes")


def wanted(field: str) -> dict[str, Any]:
    return definitions(Tables("-", "-", "-", "-"))[field]


def test_there_are_the_four_tables_and_no_other(stack: Template) -> None:
    assert set(of_type(stack, "AWS::DynamoDB::Table")) == set(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_keys_and_indexes_are_those_of_the_store(stack: Template, name: str) -> None:
    table, store = of_type(stack, "AWS::DynamoDB::Table")[name], wanted(FIELDS[name])
    assert {part: table.get(part) for part in SAME} == {part: store.get(part) for part in SAME}


@pytest.mark.parametrize("name", FIELDS)
def test_streams_are_those_of_the_store(stack: Template, name: str) -> None:
    stream = wanted(FIELDS[name]).get("StreamSpecification", {}).get("StreamViewType")
    table = of_type(stack, "AWS::DynamoDB::Table")[name]
    assert table.get("StreamSpecification", {}).get("StreamViewType") == stream


@pytest.mark.parametrize("name", FIELDS)
def test_rows_expire_by_the_attribute_of_the_store(stack: Template, name: str) -> None:
    ttl = of_type(stack, "AWS::DynamoDB::Table")[name].get("TimeToLiveSpecification")
    assert ttl == {"AttributeName": str(Attr.EXPIRES_AT), "Enabled": True}


@pytest.mark.parametrize("name", FIELDS)
def test_tables_can_be_restored_and_are_encrypted(stack: Template, name: str) -> None:
    table = of_type(stack, "AWS::DynamoDB::Table")[name]
    assert table.get("PointInTimeRecoverySpecification") == {"PointInTimeRecoveryEnabled": True}
    assert table.get("SSESpecification") == {"SSEEnabled": True}


@pytest.mark.parametrize("name", FIELDS)
def test_a_deleted_stack_leaves_its_tables(stack: Template, name: str) -> None:
    resource = stack["Resources"][name]
    assert (resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")) == (
        "Retain",
        "Retain",
    )
    assert resource["Properties"].get("DeletionProtectionEnabled") == {"Ref": "DeletionProtection"}


def test_tables_are_no_global_tables(stack: Template) -> None:
    assert of_type(stack, "AWS::DynamoDB::GlobalTable") == {}


def test_objects_live_as_long_as_their_prefix_says(stack: Template) -> None:
    (bucket,) = of_type(stack, "AWS::S3::Bucket").values()
    rules = [
        rule for rule in bucket["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" in rule
    ]
    assert {rule.get("Prefix"): rule["ExpirationInDays"] for rule in rules} == {
        f"{prefix}/": span.days for prefix, span in LIFETIMES.items()
    }
    assert all(rule["Status"] == "Enabled" for rule in as_list(rules))
    assert f"{UNEXPIRING}/" not in {rule.get("Prefix") for rule in rules}


def test_nobody_outside_sees_the_bucket(stack: Template) -> None:
    (bucket,) = of_type(stack, "AWS::S3::Bucket").values()
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
