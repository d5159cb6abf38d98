"""The checkout sample, on a bank that goes down and comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rdq_core import Outcome, Status
from rdq_core.testing.embedded import Embedded, embedded
from samples.checkout.checkout import Checkout
from samples.checkout.orders import Orders

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
    assert (status, task.status, bank.payments) == (202, Status.SUCCEEDED, {"order-7": "payment of 5"})
    failed = Outcome.RETRYABLE_FAILURE
    assert [attempt.outcome for attempt in task.attempts] == [failed, failed, failed, Outcome.SUCCESS]


def test_the_button_pressed_again_makes_no_second_task(local: Embedded, bank: FakeBank, checkout: Checkout) -> None:
    bank.is_up = False
    assert checkout.checkout(ORDER) == checkout.checkout(ORDER)
    assert local.parts.store.counts("payments.charge").pending == 1


def test_an_order_that_cannot_be_charged_is_refused_and_not_kept(local: Embedded, checkout: Checkout) -> None:
    assert checkout.checkout({"id": "order-8", "amount": 0}) == (422, {"error": "nothing to charge"})
    assert local.parts.store.counts("payments.charge").pending == 0


# -- an order and its charge in one transaction -----------------------------------------------------------------------


@pytest.fixture
def orders(local: Embedded) -> Orders:
    table = f"{local.tables.tasks}-orders"  # a name of its own, as rdq's tables have: mocks may share them
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
    assert (status, stored(orders), bank.payments) == (202, ["order-7"], {"order-7": "payment of 5"})
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
