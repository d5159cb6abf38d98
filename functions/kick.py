"""The kick function: starts sweeps for work that becomes due before the next scheduled one.

Handlers: `functions.kick.handler`, and `functions.kick.clean_up` for rows that were removed or
replaced.

Event: batches of the tasks table's stream, new and old images. Two event source mappings, with a
function for each:

    handler     rows that turned PENDING: filter `dynamodb.NewImage.status.S` = PENDING;
                bisect on error, no record older than 60 seconds
    clean_up    `eventName` = REMOVE, and `dynamodb.OldImage.status.S` in SUCCEEDED, DEAD,
                CANCELLED with `dynamodb.NewImage.status.S` = PENDING;
                a long age limit: mass expiry must not be lost

A batch that fails is delivered again; duplicate and late records do no harm.

Environment: RDQ_TASKS_TABLE, RDQ_DLQ_TABLE, RDQ_CONTROL_TABLE, RDQ_AUDIT_TABLE;
RDQ_SWEEPER_FUNCTION for `handler`; RDQ_BODY_BUCKET for `clean_up` where payloads may be large.

IAM of `handler`: dynamodb Query, GetItem, UpdateItem on control; lambda:InvokeFunction on the
sweeper; the stream's own actions. Of `clean_up`: GetItem, Query, BatchWriteItem, DeleteItem on
tasks, dlq and control; s3:DeleteObject.
"""

from typing import Any

from rdq_core.runtime.hosting import host_from_env
from rdq_core.runtime.kicking import KickFunction

_host = host_from_env("rdq-kick")
_kick = KickFunction(_host)


def handler(event: Any, _context: Any) -> dict[str, Any]:
    """Start a sweep if one is needed, and return its queues."""
    with _host.invocation():
        return {"started": _kick.kick(event)}


def clean_up(event: Any, _context: Any) -> None:
    """Delete the orphans of removed rows."""
    with _host.invocation():
        _kick.clean_up(event)
