"""Delivers webhooks: posts an event to the endpoint of the account that it belongs to.

Run it with `rdq worker handlers` in this folder; `WEBHOOK_RECEIVER` is the URL of the endpoints.
"""

import json
import os
import urllib.error
import urllib.request
from typing import Any, Final

from rdq_core import Abort, Registry, Retryable, RetryAfter, TaskContext

RECEIVER: Final = os.environ.get("WEBHOOK_RECEIVER", "http://127.0.0.1:8080")
PATIENCE_SECONDS: Final = 0.8
CRASHED: Final = 139

registry = Registry(queues=["webhooks"])


@registry.handler("deliver-webhook", version="v1")
def deliver(event: dict[str, Any], ctx: TaskContext) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - the receiver is ours
        f"{RECEIVER}/hooks/{event['account']}",
        data=ctx.payload,
        headers={
            "Content-Type": "application/json",
            # the same for every attempt, so the receiver can recognise repeats
            "Idempotency-Key": ctx.idempotency_key,
            "X-Attempt": str(ctx.attempt_no),
        },
    )
    try:
        # as above
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
            if answer.headers.get("X-Demo-Crash"):
                # Stands for what no handler survives: out of memory, a broken native library.
                os._exit(CRASHED)
            return receipt_of(answer.read())
    except urllib.error.HTTPError as refusal:
        if refusal.code == 429:  # noqa: PLR2004 - Too Many Requests
            raise RetryAfter(
                refusal.headers["Retry-After"], code="throttled", message="too many requests"
            ) from refusal
        if refusal.code == 410:  # noqa: PLR2004 - Gone
            raise Abort("endpoint_gone", "the endpoint is gone for good") from refusal
        raise  # may succeed later: the queue's policy decides how often to try


def receipt_of(answer: bytes) -> dict[str, Any]:
    try:
        return {"accepted": json.loads(answer)["accepted"]}
    except (ValueError, KeyError, TypeError) as garbage:
        raise Retryable("bad_answer", "the answer is no receipt") from garbage
