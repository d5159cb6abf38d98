"""The checkout sample, on a bank that goes down and comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rdq_core import Outcome, Status
from rdq_core.testing.embedded import Embedded, embedded
from samples.checkout.checkout import Checkout
from samples.checkout.orders import Orders
from samples.checkout.outbox import OutboxOrders

HERE = Path(__file__).parents[2] / "samples" / "checkout"

ORDER = {"id": "order-7", "amount": 5}


class FakeBank:
    """Pays once for an order, when it is up."""

    def __init__(self) -> None:
        self.is_up = True
        self.payments: dict[str, str] = {}

    def charge(self, order_id: str, amount: int) -> str:
        if not self.is_up:
            raise ConnectionError("the bank does not answer")
        return self.payments.setdefault(order_id, f"payment of {amount}")


@pytest.fixture
def local() -> Iterator[Embedded]:
    with embedded(yaml.safe_load((HERE / "queues.yaml").read_text())["queues"]) as local:
        yield local


@pytest.fixture
def bank() -> FakeBank:
    return FakeBank()


@pytest.fixture
def checkout(local: Embedded, bank: FakeBank) -> Checkout:
    return Checkout(local.rdq, bank)


def test_a_bank_that_answers_is_charged_at_once(checkout: Checkout) -> None:
    assert checkout.checkout(ORDER) == (201, {"payment": "payment of 5"})


def test_a_charge_that_was_kept_is_made_when_the_bank_is_back(
    local: Embedded, bank: FakeBank, checkout: Checkout
) -> None:
    bank.is_up = False
    status, answer = checkout.checkout(ORDER)
    local.drain(checkout.registry)
    bank.is_up = True
    local.drain(checkout.registry, horizon="1m")
    task = local.rdq.get(answer["accepted"])
    assert (status, task.status, bank.payments) == (
        202,
        Status.SUCCEEDED,
        {"order-7": "payment of 5"},
    )
    failed = Outcome.RETRYABLE_FAILURE
    assert [attempt.outcome for attempt in task.attempts] == [
        failed,
        failed,
        failed,
        Outcome.SUCCESS,
    ]


def test_the_button_pressed_again_makes_no_second_task(
    local: Embedded, bank: FakeBank, checkout: Checkout
) -> None:
    bank.is_up = False
    assert checkout.checkout(ORDER) == checkout.checkout(ORDER)
    assert local.parts.store.counts("payments.charge").pending == 1


def test_an_order_that_cannot_be_charged_is_refused_and_not_kept(
    local: Embedded, checkout: Checkout
) -> None:
    assert checkout.checkout({"id": "order-8", "amount": 0}) == (
        422,
        {"error": "nothing to charge"},
    )
    assert local.parts.store.counts("payments.charge").pending == 0


# -- an order and its charge in one transaction ----------------------------------------------------


@pytest.fixture
def orders(local: Embedded) -> Orders:
    # a name of its own, as rdq's tables have: mocks may share them
    table = f"{local.tables.tasks}-orders"
    local.client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return Orders(local.rdq, local.client, table)


def stored(orders: Orders) -> list[str]:
    return [item["id"]["S"] for item in orders.client.scan(TableName=orders.table)["Items"]]


def test_an_order_that_is_placed_is_charged(
    local: Embedded, bank: FakeBank, checkout: Checkout, orders: Orders
) -> None:
    status, answer = orders.place(ORDER)
    local.drain(checkout.registry)
    assert (status, stored(orders), bank.payments) == (
        202,
        ["order-7"],
        {"order-7": "payment of 5"},
    )
    assert local.rdq.get(answer["accepted"]).status is Status.SUCCEEDED


def test_an_order_that_is_placed_again_is_the_same_order(local: Embedded, orders: Orders) -> None:
    assert orders.place(ORDER) == orders.place(ORDER)
    assert (stored(orders), local.parts.store.counts("payments.charge").pending) == (["order-7"], 1)


def test_an_order_that_cannot_be_written_is_not_charged(local: Embedded, orders: Orders) -> None:
    local.client.put_item(TableName=orders.table, Item={"id": {"S": "order-7"}})
    assert orders.place(ORDER)[0] == 409
    assert local.parts.store.counts("payments.charge").pending == 0


def test_any_other_error_is_raised(local: Embedded, orders: Orders) -> None:
    local.client.delete_table(TableName=orders.table)
    with pytest.raises(local.client.exceptions.ClientError):
        orders.place(ORDER)
    assert local.parts.store.counts("payments.charge").pending == 0


# -- an order first, and its charge afterwards -----------------------------------------------------


@pytest.fixture
def outbox_orders(local: Embedded, checkout: Checkout) -> OutboxOrders:
    table = f"{local.tables.tasks}-outbox"
    keys = {"outbox": "HASH", "placed_at": "RANGE"}
    local.client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("id", *keys)
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "outbox",
                "KeySchema": [
                    {"AttributeName": name, "KeyType": kind} for name, kind in keys.items()
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    orders = OutboxOrders(local.rdq, local.client, table, local.clock.now)
    orders.repaired_by(checkout.registry)
    return orders


def mark_of(orders: OutboxOrders, order: str = "order-7") -> str:
    mark: str = orders.client.get_item(TableName=orders.table, Key={"id": {"S": order}})["Item"][
        "outbox"
    ]["S"]
    return mark


def test_an_order_is_written_and_then_charged(
    local: Embedded, bank: FakeBank, checkout: Checkout, outbox_orders: OutboxOrders
) -> None:
    task_id = outbox_orders.place(ORDER)
    assert mark_of(outbox_orders) == "submitted"
    local.drain(checkout.registry)
    assert (local.rdq.get(task_id).status, list(bank.payments)) == (Status.SUCCEEDED, ["order-7"])


def test_an_order_whose_charge_was_lost_on_the_way_is_charged_by_a_worker(
    local: Embedded, bank: FakeBank, checkout: Checkout, outbox_orders: OutboxOrders
) -> None:
    outbox_orders.write(ORDER)  # and the process ends
    local.drain(checkout.registry)
    assert (mark_of(outbox_orders), bank.payments) == ("pending", {})  # it might just be under way
    local.clock.advance("2m")
    local.drain(checkout.registry)
    assert (mark_of(outbox_orders), list(bank.payments)) == ("submitted", ["order-7"])
