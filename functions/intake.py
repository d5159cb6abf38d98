"""The intake: events of other services become tasks. Handler `functions.intake.handler`.

Event: batches of an SQS queue or an SQS dead-letter queue (with `ReportBatchItemFailures`), a
Lambda function's on-failure destination, an event that an EventBridge rule matched, or `{"submit":
{...}}` from EventBridge Scheduler or any other caller, with the fields of a task object. Scheduler
may send an event twice: with `"key": "<aws.scheduler.execution-id>"` in its input that is one task.
Answer: `{"batchItemFailures": [...]}` for a batch, else `{"id", "queue", "created"}`. A single
event that is refused raises, so that its sender's retries and destinations apply.

Environment: RDQ_TASKS_TABLE, RDQ_DLQ_TABLE, RDQ_CONTROL_TABLE, RDQ_AUDIT_TABLE; RDQ_INTAKE_ROUTES,
JSON from sources' ARNs, or `*`, to `{"queue": ..., "handler_ref": ...}`; RDQ_BODY_BUCKET where
payloads may be large.

IAM: the submitter's policy: dynamodb GetItem, Query on control; PutItem, GetItem, PartiQLInsert,
BatchWriteItem on tasks; PutItem, BatchWriteItem on dlq; PutItem on control; s3:PutObject where
there is a bucket; what the event sources need.
"""

from typing import Any

from rdq_core.runtime.hosting import host_from_env
from rdq_core.runtime.intake import IntakeFunction

_host = host_from_env("rdq-intake")
_intake = IntakeFunction(_host)


def handler(event: Any, context: Any) -> dict[str, Any]:
    """Store the event's tasks."""
    with _host.invocation():
        return _intake.take(event, context.aws_request_id)
