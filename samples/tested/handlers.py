"""A refund that goes through a bank which isn't always there."""

from collections.abc import Callable

from rdq_core import Abort, Registry, TaskContext

registry = Registry(queues=["refunds"])


class Declined(Exception):
    """The bank has looked at it, and won't."""


def _nobody(*_asked: object) -> str:
    raise ConnectionError("no bank is connected")


class Bank:
    """The way to the bank: set once at start, or by a test."""

    refund: Callable[[str, int, str], str] = _nobody


@registry.handler("refund-order")
def refund_order(order: dict, ctx: TaskContext) -> dict:
    """Give the money back, once."""
    if order["cents"] <= 0:
        raise Abort("nothing_to_refund", "an order without an amount")
    try:
        return {"receipt": Bank.refund(order["id"], order["cents"], ctx.idempotency_key)}
    except Declined as declined:
        raise Abort("refund_declined", "the bank won't") from declined
