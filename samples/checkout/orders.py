"""An order and its charge, written in one transaction: no order without a charge, and no charge
without an order.
"""

from typing import Any

from rdq_core import Rdq, Why

QUEUE = "payments.charge"
HANDLER = "charge-payment"


class Orders:
    """The shop's own table of orders. `client` is a low-level DynamoDB client; the table's key is
    `id`.
    """

    def __init__(self, rdq: Rdq, client: Any, table: str) -> None:
        self.rdq = rdq
        self.client = client
        self.table = table

    def place(self, order: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The HTTP status, and the text for the customer."""
        prepared = self.rdq.prepare(
            QUEUE, HANDLER, order, key=order["id"], target=f"order:{order['id']}"
        )
        try:
            self.client.transact_write_items(TransactItems=[self._put(order), *prepared.items])
        except Exception as error:
            match prepared.explain(error).why:
                case (
                    Why.COMMITTED | Why.ALREADY_SUBMITTED
                ):  # the button pressed again, or an answer that was lost
                    return 202, {"accepted": prepared.id}
                case Why.YOURS:
                    return 409, {"error": "the order exists, and was not placed here"}
            raise
        return 202, {"accepted": prepared.id}

    def _put(self, order: dict[str, Any]) -> dict[str, Any]:
        item = {"id": {"S": order["id"]}, "amount": {"N": str(order["amount"])}}
        return {
            "Put": {
                "TableName": self.table,
                "Item": item,
                "ConditionExpression": "attribute_not_exists(id)",
            }
        }
