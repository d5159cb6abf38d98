"""Delivers webhooks: posts an event to the endpoint of its account.

WEBHOOK_RECEIVER is the address of the endpoints.
"""

import json
import os
import urllib.error
import urllib.request
from typing import Any, Final

from rdq_core import Abort, Registry, Retryable, RetryAfter, TaskContext

RECEIVER: Final = os.environ.get("WEBHOOK_RECEIVER", "http://127.0.0.1:8080")
TIMEOUT_SECONDS: Final = 0.8
TOO_MANY_REQUESTS: Final = 429
GONE: Final = 410
SEGMENTATION_FAULT: Final = 139

registry = Registry(queues=["webhooks"])


@registry.handler("deliver-webhook", version="v1")
def deliver(event: dict[str, Any], ctx: TaskContext) -> dict[str, Any]:
    """Post the event. What is returned becomes the task's result; what is raised, its error."""
    request = urllib.request.Request(  # noqa: S310 - http to our own receiver
        f"{RECEIVER}/hooks/{event['account']}",
        data=ctx.payload,
        headers={
            "Content-Type": "application/json",
            # The same for every attempt, so that the receiver can recognise repeats.
            "Idempotency-Key": ctx.idempotency_key,
            "X-Attempt": str(ctx.attempt_no),
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - the same
            if answer.headers.get("X-Demo-Crash"):
                # Stands for what no handler survives: out of memory, a broken native library.
                os._exit(SEGMENTATION_FAULT)
            return receipt_of(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == TOO_MANY_REQUESTS:
            raise RetryAfter(
                error.headers["Retry-After"], code="throttled", message="too many requests"
            ) from error
        if error.code == GONE:
            raise Abort("endpoint_gone", "the endpoint is gone for good") from error
        raise  # any other error may pass: the queue's retry policy decides


def receipt_of(answer: bytes) -> dict[str, Any]:
    """The receipt in an answer. Raises Retryable if there is none."""
    try:
        return {"accepted": json.loads(answer)["accepted"]}
    except (ValueError, KeyError, TypeError) as error:
        raise Retryable("bad_answer", "the answer is not a receipt") from error
