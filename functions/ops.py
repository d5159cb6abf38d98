"""Operator requests, for callers that may invoke this function but have no access to the tables.
Handler `functions.ops.handler`.

Event: `{"op": "dlq.list", "queue": "billing", ...}` directly, the answer being the document or
`{"problem": {...}}`; the same document as the body of a POST through a function URL with IAM auth;
or a CloudFormation custom resource that declares queues. Directly, `principal` names the caller,
which the audit log has as not verified. So is the caller of a URL, unless it is the URL of the
alias `url`.

Environment: RDQ_TASKS_TABLE, RDQ_DLQ_TABLE, RDQ_CONTROL_TABLE, RDQ_AUDIT_TABLE; RDQ_BODY_BUCKET
where payloads may be large.

IAM: dynamodb GetItem, Query, UpdateItem, PutItem, DeleteItem, BatchWriteItem on tasks, dlq and
control and their indexes, and ConditionCheckItem on control (transactions need no more); Query and
PutItem on audit; s3 GetObject, PutObject, DeleteObject where there is a bucket.
"""

from typing import Any

from rdq_core.runtime.hosting import host_from_env
from rdq_core.runtime.operating import OpsFunction

_host = host_from_env("rdq-ops")
_function = OpsFunction(_host.parts)


def handler(event: Any, context: Any) -> Any:
    """Answer an operator or CloudFormation."""
    with _host.invocation():
        return _function.answer(event, context)
