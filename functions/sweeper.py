"""The sweeper function: runs due tasks on the functions that queues name as their handlers. Handler
`functions.sweeper.handler`.

Event: a schedule's, or `{"queues": [...], "shards": [...]}` for a part of the work. Answer: the
sweep's report. It invokes itself asynchronously when more is due than it can run, or has time for:
set its asynchronous retries to 0 and its maximum event age to 60 seconds.

Environment: RDQ_TASKS_TABLE, RDQ_DLQ_TABLE, RDQ_CONTROL_TABLE, RDQ_AUDIT_TABLE; RDQ_BODY_BUCKET
where payloads may be large; RDQ_REGISTRY (MODULE[:REGISTRY]) for handlers in this package;
RDQ_HELP_ABOVE and RDQ_HELP_SHARE (200 each): the number of due tasks above which it starts helpers,
and the number for each helper.

IAM: dynamodb GetItem, Query, UpdateItem, PutItem, DeleteItem, BatchWriteItem on tasks, dlq and
control and their indexes (transactions need no more); PutItem on audit; lambda:InvokeFunction on
itself and on the handlers; s3 GetObject, PutObject, DeleteObject where there is a bucket.
"""

from typing import Any

from rdq_core.client.rdq import Rdq
from rdq_core.runtime.hosting import host_from_env
from rdq_core.runtime.invocation import remaining_of, worker_name
from rdq_core.runtime.sweeping import LambdaInvocation, SweeperFunction, SweepOrder

_host = host_from_env("rdq-sweeper")
_sweeper = SweeperFunction(_host, rdq_of=lambda parts: Rdq(parts=parts))


def handler(event: Any, context: Any) -> dict[str, Any]:
    """Sweep, and return the report."""
    function = context.invoked_function_arn
    invocation = LambdaInvocation(
        function=function, worker=worker_name(context), remaining=remaining_of(context)
    )
    with _host.invocation():
        return _sweeper.sweep(SweepOrder.of(event), invocation)
