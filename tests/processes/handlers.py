"""What the workers of the process tests run: post the payload to the receiver, and say who is
posting.
"""

import os
import urllib.request

from rdq_core import Registry, TaskContext

registry = Registry(queues=["deliveries"])


@registry.handler("deliver")
def deliver(payload: bytes, ctx: TaskContext) -> None:
    headers = {
        "X-Task": ctx.task.id,
        "X-Attempt": str(ctx.attempt_no),
        "X-Worker": str(os.getpid()),
    }
    request = urllib.request.Request(os.environ["RECEIVER"], data=payload, headers=headers)
    urllib.request.urlopen(request, timeout=30).close()
