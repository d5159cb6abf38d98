"""What failed requests mean, how cancelled transactions are read, and what a person is told when
nothing helps.
"""

from typing import Any

import pytest
from botocore.exceptions import (
    ChecksumError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)

from rdq_core.errors import LeaseLost, StoreFailed, Unavailable
from rdq_core.stores.dynamodb.expressions import CLAUSES, all_of, any_of, change, expressed
from rdq_core.stores.dynamodb.request_failures import FailureKind, understand
from rdq_core.stores.dynamodb.schema import Attr, Tables, create_tables, definitions
from rdq_core.stores.dynamodb.sender import MAX_SENDS, Sender
from rdq_core.stores.dynamodb.values import item_size
from rdq_core.testing.faults import FaultScript, Rejects
from tests.dynamodb.world import QUEUE, TABLES, TASK_ID, World


def _cancelled(*codes: str | None) -> ClientError:
    reasons = [
        {"Code": code or "None", "Item": {"row": {"N": str(place)}}}
        for place, code in enumerate(codes)
    ]
    answer: Any = {
        "Error": {"Code": "TransactionCanceledException"},
        "CancellationReasons": reasons,
    }
    return ClientError(answer, "TransactWriteItems")


CANCELLED = [
    (("ConditionalCheckFailed", None), FailureKind.CONDITION),
    ((None, "ConditionalCheckFailed"), FailureKind.CONDITION),
    (("ConditionalCheckFailed", "TransactionConflict"), FailureKind.CONDITION),
    (("ThrottlingError", "ConditionalCheckFailed"), FailureKind.CONDITION),
    (("TransactionConflict", None), FailureKind.CONFLICT),
    (("TransactionConflict", "ProvisionedThroughputExceeded"), FailureKind.THROTTLED),
    ((None, "ThrottlingError"), FailureKind.THROTTLED),
    (("ValidationError", None), FailureKind.BUG),
    (("ConditionalCheckFailed", "ValidationError"), FailureKind.BUG),
    (("TransactionConflict", "ItemCollectionSizeLimitExceeded"), FailureKind.BUG),
    ((None, None), FailureKind.BUG),
    ((), FailureKind.BUG),
]


@pytest.mark.parametrize(("codes", "kind"), CANCELLED)
def test_a_cancelled_transaction_is_read_item_by_item(
    codes: tuple[str | None, ...], kind: FailureKind
) -> None:
    assert understand(_cancelled(*codes)).kind is kind


def test_a_failed_condition_brings_the_row_of_its_own_item() -> None:
    fault = understand(_cancelled(None, "ConditionalCheckFailed"))
    assert fault.rows == {1: {"row": {"N": "1"}}}


UNANSWERED = [
    (EndpointConnectionError(endpoint_url="x"), FailureKind.NOT_SENT),
    (ConnectTimeoutError(endpoint_url="x"), FailureKind.NOT_SENT),
    (ReadTimeoutError(endpoint_url="x"), FailureKind.BROKEN),
    (
        ChecksumError(checksum_type="crc32", expected_checksum="1", actual_checksum="2"),
        FailureKind.BROKEN,
    ),
    (NoCredentialsError(), FailureKind.UNAVAILABLE),
    (ParamValidationError(report="x"), FailureKind.BUG),
]


@pytest.mark.parametrize(
    ("error", "kind"), UNANSWERED, ids=lambda value: getattr(value, "name", type(value).__name__)
)
def test_a_request_without_an_answer_may_have_been_carried_out_or_not(
    error: Exception, kind: FailureKind
) -> None:
    fault = understand(error)
    assert (fault.kind, fault.kind.may_have_happened) == (kind, kind is FailureKind.BROKEN)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("ThrottlingException", 400, FailureKind.THROTTLED),
        ("TransactionInProgressException", 400, FailureKind.BROKEN),
        ("InternalServerError", 500, FailureKind.BROKEN),
        ("SomethingNew", 503, FailureKind.BROKEN),
        ("SomethingNew", 400, FailureKind.BUG),
        ("ValidationException", 400, FailureKind.BUG),
        ("IdempotentParameterMismatchException", 400, FailureKind.BUG),
        ("ExpiredTokenException", 400, FailureKind.UNAVAILABLE),
    ],
)
def test_an_error_code_belongs_to_one_family(code: str, status: int, kind: FailureKind) -> None:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert understand(ClientError(answer, "PutItem")).kind is kind


@pytest.mark.parametrize("reasons", [("TransactionConflict", None), (None, "ThrottlingError")])
def test_a_transaction_that_only_met_others_is_sent_again_unchanged(
    world: World, reasons: tuple[str | None, ...]
) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.reject(
            "TransactionCanceledException", "TransactWriteItems", times=3, reasons=reasons
        )
        world.bury(claim)
    sent = [
        request.params for request in faults.requests if request.operation == "TransactWriteItems"
    ]
    assert (len(sent), sent[1:]) == (4, sent[:-1])


def test_a_transaction_whose_condition_failed_is_lost_whatever_else_went_wrong(
    world: World,
) -> None:
    claim = world.claimed()
    row = {**world.row(), "t": {"S": "somebody else's"}}
    with FaultScript(world.client) as faults:
        refused = {"Code": "ConditionalCheckFailed", "Item": row}
        faults.reject(
            "TransactionCanceledException",
            "TransactWriteItems",
            reasons=(refused, "TransactionConflict"),
        )
        with pytest.raises(LeaseLost):
            world.bury(claim)


def test_a_request_that_is_wrong_is_our_bug_and_raised_as_it_is(world: World) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.reject(
            "TransactionCanceledException", "TransactWriteItems", reasons=(None, "ValidationError")
        )
        with pytest.raises(ClientError):
            world.bury(claim)


def test_a_missing_table_is_named(world: World) -> None:
    world.client.delete_table(TableName=TABLES.tasks)
    with pytest.raises(Unavailable, match="table rdq-tasks does not exist"):
        world.store.candidates(QUEUE, 0, until=world.now, limit=1)


def test_a_forbidden_action_is_named_with_its_table(world: World) -> None:
    claim = world.claimed()
    with FaultScript(world.client) as faults:
        faults.reject("AccessDeniedException", "TransactWriteItems")
        with pytest.raises(
            Unavailable, match="dynamodb:TransactWriteItems on rdq-tasks, rdq-dlq is not allowed"
        ):
            world.bury(claim)


@pytest.mark.parametrize(
    ("resource", "place"),
    [
        (
            (
                " on resource: arn:aws:dynamodb:eu-central-1:123456789012:table/rdq-dlq"
                " because no policy allows it"
            ),
            "rdq-dlq",
        ),
        ("", "rdq-tasks, rdq-dlq"),
    ],
)
def test_of_a_transaction_the_action_is_named_that_the_role_is_missing(
    world: World, resource: str, place: str
) -> None:
    claim = world.claimed()
    user = "User: arn:aws:sts::123456789012:assumed-role/r/ann"
    message = f"{user} is not authorized to perform: dynamodb:PutItem{resource}"
    with FaultScript(world.client) as faults:
        faults.add(Rejects("AccessDeniedException", message), "TransactWriteItems")
        with pytest.raises(Unavailable) as refused:
            world.bury(claim)
    assert refused.value.message == f"dynamodb:PutItem on {place} is not allowed"


def test_refused_credentials_are_told(world: World) -> None:
    with FaultScript(world.client) as faults:
        faults.reject("UnrecognizedClientException")
        with pytest.raises(Unavailable, match="credentials"):
            world.store.get(TASK_ID)


def test_a_read_that_fails_has_changed_nothing(world: World) -> None:
    with FaultScript(world.client) as faults:
        faults.lose_answer("GetItem", times=None)
        with pytest.raises(StoreFailed) as failed:
            world.store.get(TASK_ID)
    assert not failed.value.may_have_happened


def test_errors_carry_no_payload(world: World) -> None:
    with FaultScript(world.client) as faults:
        faults.add(Rejects("InternalServerError"), times=None)
        with pytest.raises(StoreFailed) as failed:
            world.submit(payload=b"secret", headers={"authorization": "secret"})
    assert "secret" not in repr(failed.value)


class LeavesSomeUndone:
    """A client whose batches leave all but their first item unprocessed."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    # boto3's own name
    def batch_write_item(self, RequestItems: dict[str, list[Any]]) -> dict[str, Any]:  # noqa: N803
        ((table, (first, *rest)),) = RequestItems.items()
        self.deleted.append(first["DeleteRequest"]["Key"]["kind"]["S"])
        return {"UnprocessedItems": {table: rest} if rest else {}}


def test_unprocessed_items_are_sent_again(world: World) -> None:
    client = LeavesSomeUndone()
    sender = Sender(client, jitter=_Middle(), sleeper=world.sleeper)
    keys = [{"task_id": {"S": "x"}, "kind": {"S": f"A#{number}"}} for number in range(6)]
    sender.delete_all("rdq-dlq", keys)
    assert client.deleted == [key["kind"]["S"] for key in keys]
    with pytest.raises(StoreFailed, match="unprocessed"):
        sender.delete_all("rdq-dlq", keys * (MAX_SENDS // 2))


class _Middle:
    def fraction(self) -> float:
        return 0.0


def test_only_names_and_values_that_are_used_are_sent() -> None:
    update, values = change({Attr.STATUS: {"S": "DEAD"}}, (Attr.DUE_AT,))
    request = expressed(
        {"UpdateExpression": update, "ConditionExpression": all_of("IS_DUE")},
        {**values, ":now": {"N": "1"}, ":other": {"N": "2"}},
    )
    assert request["ExpressionAttributeNames"] == {"#status": "status", "#due_at": "due_at"}
    assert request["ExpressionAttributeValues"] == {
        ":new_status": {"S": "DEAD"},
        ":now": {"N": "1"},
    }


def test_conditions_look_their_clauses_up_when_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(CLAUSES, "IS_DUE", "replaced")
    assert (all_of("IS_DUE"), any_of("IS_DUE", "IS_ABSENT")) == (
        "replaced",
        "(replaced) OR (attribute_not_exists(#task_id))",
    )


def test_tables_are_made_once_and_stay(anywhere: World) -> None:
    anywhere.submit()
    create_tables(anywhere.client, TABLES)
    assert anywhere.got().id == TASK_ID
    described = anywhere.client.describe_table(TableName=TABLES.tasks)["Table"]
    (index,) = described["GlobalSecondaryIndexes"]
    assert set(index["Projection"]["NonKeyAttributes"]) == {
        "status",
        "fencing_token",
        "handler_ref",
        "concurrency_key",
    }
    assert described["StreamSpecification"]["StreamViewType"] == "NEW_AND_OLD_IMAGES"
    ttl = anywhere.client.describe_time_to_live(TableName=TABLES.tasks)["TimeToLiveDescription"]
    assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "expires_at")


def test_table_names_come_from_the_environment_or_each_missing_one_is_named() -> None:
    assert Tables.from_env(TABLES.as_env()) == TABLES
    with pytest.raises(
        Unavailable, match="no table name in RDQ_DLQ_TABLE; not a table's name in RDQ_AUDIT_TABLE"
    ):
        Tables.from_env({**TABLES.as_env(), "RDQ_DLQ_TABLE": "", "RDQ_AUDIT_TABLE": "no spaces"})
    with pytest.raises(Unavailable, match=r"^not a table's name in RDQ_AUDIT_TABLE") as refused:
        Tables.from_env({**TABLES.as_env(), "RDQ_AUDIT_TABLE": "no spaces"})
    assert "3 to 255" in str(refused.value.hint)


def test_each_table_has_its_definition_and_no_two_attributes_share_a_name() -> None:
    assert [each["TableName"] for each in definitions(TABLES).values()] == [
        "rdq-tasks",
        "rdq-dlq",
        "rdq-control",
        "rdq-audit",
    ]
    assert len({attr.value for attr in Attr}) == len(list(Attr))


@pytest.mark.parametrize(
    ("digits", "size"),
    [("0", 1), ("1", 2), ("99", 2), ("100", 2), ("101", 3), ("-1", 3), ("1000", 2), ("1234567", 5)],
)
def test_a_number_is_measured_by_its_significant_digits(digits: str, size: int) -> None:
    assert item_size({"": {"N": digits}}) == size


@pytest.mark.parametrize(
    ("value", "size"),
    [({"S": "é"}, 2), ({"NULL": True}, 1), ({"M": {"a": {"S": "b"}}}, 6), ({"L": []}, 3)],
)
def test_a_value_is_measured_by_the_published_rules(value: dict[str, Any], size: int) -> None:
    assert item_size({"": value}) == size
