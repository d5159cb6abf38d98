"""A checkout that works while the bank is down: it charges now, or stores the charge for later."""

from typing import Any, Protocol

from rdq_core import Deferred, Done, Rdq, Registry

QUEUE = "payments.charge"
HANDLER = "charge-payment"
BANK_IS_DOWN = (ConnectionError, TimeoutError)


class Bank(Protocol):
    """The bank as the checkout needs it."""

    def charge(self, order_id: str, amount: int) -> str:
        """Charge once for an order, however often this is called. Returns the payment's number."""
        ...


class Checkout:
    """The checkout of one process. `registry` is for the workers, which make stored charges."""

    def __init__(self, rdq: Rdq, bank: Bank) -> None:
        self.bank = bank
        # One order is one task, however often the customer presses the button.
        guard = rdq.guard(
            QUEUE, HANDLER, on=BANK_IS_DOWN, max_attempts=2, key=lambda order: order["id"]
        )
        self.charge = guard(self._charge)
        self.registry = Registry(queues=[QUEUE])
        # The guarded function is its own handler. When rdq calls it, it raises, and rdq retries.
        self.registry.register(HANDLER, self.charge)

    def checkout(self, order: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The HTTP status and the answer to the customer."""
        try:
            outcome = self.charge(order)
        except ValueError as refusal:  # not in `on`: no later attempt can succeed
            return 422, {"error": str(refusal)}
        match outcome:
            case Done(payment):
                return 201, {"payment": payment}
            case Deferred(task_id):
                return 202, {"accepted": task_id}

    def _charge(self, order: dict[str, Any]) -> str:
        if order["amount"] <= 0:
            raise ValueError("nothing to charge")
        return self.bank.charge(order["id"], order["amount"])
