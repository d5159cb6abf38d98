"""An order first, its charge afterwards: for writes that can't share a transaction with rdq's."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rdq_core import NewTask, Outbox, Rdq, Registry

QUEUE = "payments.charge"
HANDLER = "charge-payment"
UNDER_WAY: Final = timedelta(minutes=1)
"""An order younger than this may still be in `place`, which submits its charge."""


class OutboxOrders:
    """The shop's own table of orders: its key is `id`, its index `outbox` has the keys `outbox` and
    `placed_at`.

    An order is written as `pending` and marked `submitted` once its charge is a task. If a failure
    comes in between, a worker's reconciler submits the charge. The business key makes an order that
    both of them submit one task.
    """

    def __init__(
        self, rdq: Rdq, client: Any, table: str, now: Callable[[], datetime] | None = None
    ) -> None:
        self.rdq = rdq
        self.client = client
        self.table = table
        self.now = now or (lambda: datetime.now(UTC))
        self.outbox = Outbox(
            client=client,
            table=table,
            index="outbox",
            primary_key=["id"],
            mark="outbox",
            order="placed_at",
            task_of=charge_of,
            before=self.a_while_ago,
        )

    def a_while_ago(self) -> str:
        """The time before which every order has left `place`."""
        return in_text(self.now() - UNDER_WAY)

    def place(self, order: dict[str, Any]) -> str:
        """Write the order, then submit its charge; returns the task's id. A written order is
        charged even if this raises.
        """
        return self.outbox.submit(self.rdq, self.write(order)).id

    def write(self, order: dict[str, Any]) -> dict[str, Any]:
        """Write the order alone. Raises for an order that exists."""
        item = {
            "id": {"S": order["id"]},
            "amount": {"N": str(order["amount"])},
            "outbox": {"S": "pending"},
            "placed_at": {"S": in_text(self.now())},
        }
        self.client.put_item(
            TableName=self.table, Item=item, ConditionExpression="attribute_not_exists(id)"
        )
        return item

    def repaired_by(self, registry: Registry) -> None:
        """Make the workers of this registry submit the charges of pending orders, before each claim
        cycle.
        """
        registry.reconciler("orders-without-a-charge")(self.outbox.repair)


def in_text(moment: datetime) -> str:
    """A moment as text that the index sorts by time."""
    return moment.isoformat(timespec="milliseconds")


def charge_of(record: Mapping[str, Any]) -> NewTask:
    """The charge of an order in the table."""
    order = {"id": record["id"]["S"], "amount": int(record["amount"]["N"])}
    return NewTask(QUEUE, HANDLER, order, key=order["id"])
