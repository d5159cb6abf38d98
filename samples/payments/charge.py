"""An existing function that doesn't use rdq: it charges a card and returns an HTTP response."""

from typing import Any

ANSWERS = {"tok_declined": 402, "tok_outage": 503}
"""The statuses of the bank's test cards. Every other card is charged."""


def handler(order: dict[str, Any], _context: object) -> dict[str, Any]:
    status = ANSWERS.get(order["card"], 200)
    return {"statusCode": status, "body": f"order {order['id']}: {status}"}
