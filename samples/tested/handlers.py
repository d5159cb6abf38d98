"""Refunds through a bank that is sometimes unreachable."""

from collections.abc import Callable

from rdq_core import Abort, Registry, TaskContext

registry = Registry(queues=["refunds"])


class Declined(Exception):
    """The bank declines the refund."""


def _not_connected(*_arguments: object) -> str:
    raise ConnectionError("no bank is connected")


class Bank:
    """The connection to the bank: set once at start, or by a test."""

    refund: Callable[[str, int, str], str] = _not_connected


@registry.handler("refund-order")
def refund_order(order: dict, ctx: TaskContext) -> dict:
    """Give the money back, once."""
    if order["cents"] <= 0:
        raise Abort("nothing_to_refund", "an order without an amount")
    try:
        return {"receipt": Bank.refund(order["id"], order["cents"], ctx.idempotency_key)}
    except Declined as declined:
        raise Abort("refund_declined", "the bank won't") from declined
