"""Transactional submit: the business write and the task together or not at all, and who it was that
said no.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from rdq_core.domain.references import GRACE, Reference, ReferenceKind
from rdq_core.domain.task import Status
from rdq_core.engine.prepared import GOOD_FOR, Prepared, Why
from rdq_core.engine.submit import Receipt
from rdq_core.errors import InputInvalid, StoreFailed
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.verbs import noise
from tests.dynamodb.world import QUEUE, SHARDS, TABLES, TASK_ID, World, a_task
from tests.support.engines import REGION

ORDERS = TABLES.audit
"""The application's own table: any with another key than rdq's will do."""
ORDER = Reference(ReferenceKind.TARGET, "order:1")
SIZES = pytest.mark.parametrize("size", [10, 3000], ids=["inline", "outside"])


def prepare(world: World, **fields: Any) -> Prepared:
    return world.store.prepare(a_task(**fields), shards=SHARDS)


def put_order(world: World, order_id: str = "17") -> dict[str, Any]:
    """The application's write: an order that isn't there yet."""
    item = {"pk": {"S": order_id}, "sk": {"S": "order"}}
    return {
        "Put": {
            "TableName": ORDERS,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(pk)",
        }
    }


def orders(world: World) -> int:
    return len(world.client.scan(TableName=ORDERS)["Items"])


def commit(world: World, prepared: Prepared, *others: dict[str, Any]) -> None:
    world.client.transact_write_items(TransactItems=[*others, *prepared.items])


def why(world: World, prepared: Prepared, *others: dict[str, Any]) -> Why:
    """Why the transaction fails."""
    with pytest.raises(ClientError) as failed:
        commit(world, prepared, *others)
    return prepared.explain(failed.value).why


@pytest.fixture
def anywhere(anywhere: World) -> World:
    for item in anywhere.client.scan(TableName=ORDERS)["Items"]:
        anywhere.client.delete_item(TableName=ORDERS, Key={"pk": item["pk"], "sk": item["sk"]})
    return anywhere


# -- together --------------------------------------------------------------------------------------


@SIZES
def test_the_task_is_there_once_the_transaction_is_committed_and_not_before(
    anywhere: World, size: int
) -> None:
    prepared = prepare(
        anywhere, payload=noise(size), headers={"a": "b"}, target="order:1", requested_by="ann"
    )
    assert (anywhere.store.get(TASK_ID), anywhere.due()) == (None, [])

    commit(anywhere, prepared, put_order(anywhere))

    assert prepared.receipt == Receipt(TASK_ID, QUEUE, created=True)
    assert orders(anywhere) == 1
    loaded = anywhere.store.load(anywhere.claim(prepared.id))
    assert (loaded.payload, loaded.headers, loaded.target) == (noise(size), {"a": "b"}, "order:1")
    assert anywhere.store.forget(ORDER, now=anywhere.now) == 1


@SIZES
def test_a_resource_takes_the_plain_items(anywhere: World, size: int) -> None:
    resource: Any = boto3.resource(
        "dynamodb",
        endpoint_url=anywhere.engine.endpoint_url,
        region_name=REGION,
        aws_access_key_id=anywhere.engine.access_key,
        aws_secret_access_key="test",
    )
    prepared = prepare(anywhere, payload=noise(size), target="order:1")
    order = {"Put": {"TableName": ORDERS, "Item": {"pk": "17", "sk": "order"}}}

    resource.meta.client.transact_write_items(TransactItems=[order, *prepared.plain_items])

    assert (anywhere.got().payload, orders(anywhere)) == (noise(size), 1)
    again = prepare(anywhere, payload=b"again")
    with pytest.raises(ClientError) as failed:
        resource.meta.client.transact_write_items(TransactItems=[order, *again.plain_items])
    assert again.explain(failed.value).why is Why.ALREADY_SUBMITTED


def test_an_id_is_free_for_a_prepared_task_when_its_retention_is_over(anywhere: World) -> None:
    anywhere.dead(payload=noise(2000), expires_at=anywhere.now + timedelta(hours=1))
    anywhere.clock.advance("1h")
    commit(anywhere, prepare(anywhere, payload=b"new"), put_order(anywhere))
    assert (anywhere.got().payload, anywhere.got().attempts) == (b"new", ())


# -- or not at all ---------------------------------------------------------------------------------


@SIZES
def test_a_condition_of_the_callers_own_keeps_the_task_out_and_is_named(
    anywhere: World, size: int
) -> None:
    anywhere.client.put_item(TableName=ORDERS, Item=put_order(anywhere)["Put"]["Item"])
    prepared = prepare(anywhere, payload=noise(size), target="order:1")
    with pytest.raises(ClientError) as failed:
        commit(anywhere, prepared, put_order(anywhere, "18"), put_order(anywhere))
    explained = prepared.explain(failed.value)
    assert (explained.why, explained.positions, explained.receipt) == (Why.YOURS, (1,), None)
    assert (anywhere.store.get(TASK_ID), orders(anywhere)) == (None, 1)


@SIZES
def test_a_task_that_is_there_already_is_named_and_the_order_is_not_written(
    anywhere: World, size: int
) -> None:
    anywhere.claimed(payload=b"first")
    before = anywhere.everything()
    prepared = prepare(anywhere, payload=noise(size), target="order:1")
    with pytest.raises(ClientError) as failed:
        commit(anywhere, prepared, put_order(anywhere))
    explained = prepared.explain(failed.value)
    assert (explained.why, explained.receipt) == (
        Why.ALREADY_SUBMITTED,
        Receipt(TASK_ID, QUEUE, created=False),
    )
    assert (anywhere.everything(), anywhere.control(), orders(anywhere)) == (before, [], 0)


def test_an_id_of_another_queue_is_a_conflict(anywhere: World) -> None:
    prepared = prepare(anywhere, queue="email")
    anywhere.submit()
    assert (why(anywhere, prepared, put_order(anywhere)), orders(anywhere)) == (Why.CONFLICT, 0)


@pytest.mark.parametrize(
    "reference", [ORDER, Reference(ReferenceKind.REQUESTED_BY, "ann")], ids=["target", "by"]
)
def test_what_was_forgotten_since_it_was_prepared_is_not_committed(
    anywhere: World, reference: Reference
) -> None:
    prepared = prepare(anywhere, payload=noise(2000), target="order:1", requested_by="ann")
    anywhere.store.forget(reference, now=anywhere.now)
    assert (why(anywhere, prepared, put_order(anywhere)), orders(anywhere)) == (Why.FORGOTTEN, 0)


def test_what_was_forgotten_long_before_is_new_business(anywhere: World) -> None:
    anywhere.store.forget(ORDER, now=anywhere.now)
    anywhere.clock.advance(GRACE + timedelta(milliseconds=1))
    commit(anywhere, prepare(anywhere, target="order:1"))
    assert anywhere.claim().task.id == TASK_ID


# -- when answers are lost -------------------------------------------------------------------------


def test_a_commit_that_is_sent_again_after_its_answer_was_lost_is_ours(world: World) -> None:
    prepared = prepare(world, payload=noise(2000))
    commit(world, prepared, put_order(world, "lost"))
    world.claim()
    with pytest.raises(ClientError) as failed:  # moto doesn't know a transaction by its token
        commit(world, prepared, put_order(world, "lost"))
    explained = prepared.explain(failed.value)
    assert (explained.why, explained.receipt) == (Why.COMMITTED, prepared.receipt)
    assert world.got().payload == noise(2000)


@pytest.mark.parametrize("answer_lost", [False, True], ids=["request lost", "answer lost"])
def test_without_an_answer_the_row_says_whether_it_was_committed(
    anywhere: World, answer_lost: bool
) -> None:
    prepared = prepare(anywhere)
    with FaultScript(anywhere.client) as faults:
        if answer_lost:
            faults.lose_answer("TransactWriteItems", times=None)
        else:
            faults.lose_request("TransactWriteItems", times=None, error=ReadTimeoutError)
        with pytest.raises(ReadTimeoutError) as failed:
            commit(anywhere, prepared, put_order(anywhere))
    assert prepared.explain(failed.value).why is (Why.COMMITTED if answer_lost else Why.PASSING)
    assert orders(anywhere) == answer_lost


@pytest.mark.parametrize(
    ("code", "reasons", "expected"),
    [
        ("TransactionCanceledException", (None, "TransactionConflict"), Why.PASSING),
        ("TransactionCanceledException", ("ThrottlingError", None), Why.PASSING),
        ("TransactionInProgressException", (), Why.PASSING),
        ("InternalServerError", (), Why.PASSING),
        ("AccessDeniedException", (), Why.OTHER),
        ("ValidationException", (), Why.OTHER),
        ("TransactionCanceledException", ("ConditionalCheckFailed", None), Why.YOURS),
    ],
)
def test_other_refusals_are_told_apart(
    world: World, code: str, reasons: tuple[str | None, ...], expected: Why
) -> None:
    prepared = prepare(world)
    with FaultScript(world.client) as faults:
        faults.reject(code, "TransactWriteItems", times=None, reasons=reasons)
        assert why(world, prepared, put_order(world)) is expected


def test_explanations_have_no_payload_and_no_requester_in_them(world: World) -> None:
    world.submit(payload=b"secret")
    prepared = prepare(world, payload=b"secret" * 500, requested_by="ann@example.org")
    with pytest.raises(ClientError) as failed:
        commit(world, prepared)
    said = f"{prepared.explain(failed.value)} {prepared!r}"
    assert "secret" not in said
    assert "ann@" not in said


# -- what is left, and for how long ----------------------------------------------------------------


def test_items_are_refused_when_five_minutes_are_over(world: World) -> None:
    prepared = prepare(world, payload=noise(2000))
    world.clock.advance(GOOD_FOR - timedelta(milliseconds=1))
    assert (prepared.good_until - world.now, len(prepared.items)) == (timedelta(milliseconds=1), 1)
    world.clock.advance("1ms")
    for dialect in ("items", "plain_items"):
        with pytest.raises(InputInvalid, match="five minutes"):
            getattr(prepared, dialect)


def test_what_is_never_committed_leaves_an_orphan_that_goes_by_itself(world: World) -> None:
    prepare(world, payload=noise(2000), target="order:1")
    assert [kind[:2] for kind in world.kinds()] == ["B#"]
    (body,) = world.items(TABLES.tasks).values()
    (reference,) = world.control()
    assert int(body["expires_at"]["N"]) > world.now.timestamp()
    assert body["expires_at"] == reference["expires_at"]


def test_a_body_that_cannot_be_stored_fails_before_there_are_items(world: World) -> None:
    with FaultScript(world.client) as faults:
        faults.lose_request("PutItem", times=None)
        with pytest.raises(StoreFailed):
            prepare(world, payload=noise(2000))
    with pytest.raises(InputInvalid, match="RDQ_BODY_BUCKET"):
        prepare(world, payload=noise(300 * 1024))
    assert world.kinds() == []


def test_of_two_prepared_submits_of_one_key_one_commits(anywhere: World) -> None:
    first, second = prepare(anywhere, payload=noise(2000)), prepare(anywhere, payload=noise(2500))
    commit(anywhere, second)
    assert why(anywhere, first) is Why.ALREADY_SUBMITTED
    assert [kind[:2] for kind in anywhere.kinds()] == ["B#", "T"]
    assert (anywhere.got().payload, anywhere.got().status) == (noise(2500), Status.PENDING)


def test_a_prepared_task_for_later_is_due_then(world: World) -> None:
    later = world.now + timedelta(days=300)
    prepared = world.store.prepare(
        replace(a_task(payload=noise(2000)), next_attempt_at=later), shards=SHARDS
    )
    commit(world, prepared)
    assert world.got().next_attempt_at == later
    world.clock.advance(timedelta(days=300))
    assert world.store.load(world.claim()).payload == noise(2000)
