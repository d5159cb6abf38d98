"""A function that was there before rdq, and knows nothing of it: it charges a card, and answers as
HTTP does.
"""

from typing import Any

ANSWERS = {"tok_declined": 402, "tok_outage": 503}
"""What the bank's test cards lead to. Every other card is charged."""


def handler(order: dict[str, Any], _context: object) -> dict[str, Any]:
    status = ANSWERS.get(order["card"], 200)
    return {"statusCode": status, "body": f"order {order['id']}: {status}"}
