"""A consumer of an SQS queue. A message that fails becomes a task and leaves the queue."""

from typing import Any

from rdq_core import Rdq, TaskContext, lambda_handler, sqs_consumer

rdq = Rdq.from_env()


def fulfil(order: dict[str, Any], ctx: TaskContext) -> str:
    """Send an order to its warehouse; the slow one doesn't answer the first time."""
    if order["warehouse"] == "slow" and ctx.attempt_no == 1:
        raise ConnectionError("the warehouse does not answer")
    return f"order {order['id']} goes out from {order['warehouse']}"


consume = sqs_consumer(rdq, "orders.fulfil", "fulfil")(fulfil)
retry = lambda_handler(rdq, "fulfil", fulfil)
