"""An order first and its charge afterwards, where the order's write can't be part of a transaction
with rdq's.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rdq_core import NewTask, Outbox, Rdq, Registry

QUEUE = "payments.charge"
HANDLER = "charge-payment"
UNDER_WAY: Final = timedelta(minutes=1)
"""A younger order may still be being placed by another request."""


class OutboxOrders:
    """The shop's own table of orders: its key is `id`, its index `outbox` has the keys `outbox` and
    `placed_at`.

    An order is written as `pending` and marked `submitted` once its charge is a task. Whatever
    fails in between, the reconciler of a worker finds it. The business key sees to it that an order
    that both submit is charged once.
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
        """Orders written before this time are no longer being placed."""
        return in_text(self.now() - UNDER_WAY)

    def place(self, order: dict[str, Any]) -> str:
        """Write the order, then submit its charge; the task's id. Whatever is raised, a written
        order is charged.
        """
        return self.outbox.submit(self.rdq, self.write(order)).id

    def write(self, order: dict[str, Any]) -> dict[str, Any]:
        """Write the order alone. An order that is there already is refused."""
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
        """Have the workers of this registry submit, before each look for work, what was written and
        not submitted.
        """
        registry.reconciler("orders-without-a-charge")(self.outbox.repair)


def in_text(moment: datetime) -> str:
    """A moment as the index sorts it."""
    return moment.isoformat(timespec="milliseconds")


def charge_of(record: Mapping[str, Any]) -> NewTask:
    """The charge of an order as it is in the table."""
    order = {"id": record["id"]["S"], "amount": int(record["amount"]["N"])}
    return NewTask(QUEUE, HANDLER, order, key=order["id"])
