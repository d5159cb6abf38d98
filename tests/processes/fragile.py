"""What the workers of the chaos test run: a bit of work, and one effect under the claim's fencing
token.
"""

import os
import time
import urllib.request

from rdq_core import Registry, TaskContext

registry = Registry(queues=["chaos"])


@registry.handler("work")
def work(number: int, ctx: TaskContext) -> int:
    time.sleep(number % 7 / 3.5)
    headers = {
        "X-Task": ctx.task.id,
        "X-Attempt": str(ctx.attempt_no),
        "X-Fence": str(ctx.fencing_token),
        "X-Worker": str(os.getpid()),
    }
    request = urllib.request.Request(os.environ["RECEIVER"], data=b"", headers=headers)
    urllib.request.urlopen(request, timeout=30).close()
    return number
