"""rdq: durable retries with a dead-letter queue, on DynamoDB and Lambda.

Public names are loaded on first use, so importing rdq costs a cold start nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rdq_core.client.lambda_handler import lambda_handler as lambda_handler
    from rdq_core.client.outbox import Outbox as Outbox
    from rdq_core.client.rdq import Rdq as Rdq
    from rdq_core.client.sqs_consumer import sqs_consumer as sqs_consumer
    from rdq_core.config.settings import Retry as Retry
    from rdq_core.domain.attempt import Outcome as Outcome
    from rdq_core.domain.guarded import Deferred as Deferred
    from rdq_core.domain.guarded import Done as Done
    from rdq_core.domain.outcome import Abort as Abort
    from rdq_core.domain.outcome import Retryable as Retryable
    from rdq_core.domain.outcome import RetryAfter as RetryAfter
    from rdq_core.domain.task import Status as Status
    from rdq_core.domain.task import Task as Task
    from rdq_core.engine.context import TaskContext as TaskContext
    from rdq_core.engine.prepared import Explanation as Explanation
    from rdq_core.engine.prepared import Prepared as Prepared
    from rdq_core.engine.prepared import Why as Why
    from rdq_core.engine.submit import Receipt as Receipt
    from rdq_core.handlers.new_task import NewTask as NewTask
    from rdq_core.handlers.registry import Registry as Registry
    from rdq_core.handlers.results import TaskResult as TaskResult
    from rdq_core.handlers.typed import TaskDefinition as TaskDefinition
    from rdq_core.handlers.typed import task as task

_HOME: Final = {
    "Abort": "rdq_core.domain.outcome",
    "Deferred": "rdq_core.domain.guarded",
    "Done": "rdq_core.domain.guarded",
    "Explanation": "rdq_core.engine.prepared",
    "NewTask": "rdq_core.handlers.new_task",
    "Outbox": "rdq_core.client.outbox",
    "Outcome": "rdq_core.domain.attempt",
    "Prepared": "rdq_core.engine.prepared",
    "Rdq": "rdq_core.client.rdq",
    "Receipt": "rdq_core.engine.submit",
    "Registry": "rdq_core.handlers.registry",
    "Retry": "rdq_core.config.settings",
    "RetryAfter": "rdq_core.domain.outcome",
    "Retryable": "rdq_core.domain.outcome",
    "Status": "rdq_core.domain.task",
    "Task": "rdq_core.domain.task",
    "TaskContext": "rdq_core.engine.context",
    "TaskDefinition": "rdq_core.handlers.typed",
    "TaskResult": "rdq_core.handlers.results",
    "Why": "rdq_core.engine.prepared",
    "lambda_handler": "rdq_core.client.lambda_handler",
    "sqs_consumer": "rdq_core.client.sqs_consumer",
    "task": "rdq_core.handlers.typed",
}

__all__ = [
    "Abort",
    "Deferred",
    "Done",
    "Explanation",
    "NewTask",
    "Outbox",
    "Outcome",
    "Prepared",
    "Rdq",
    "Receipt",
    "Registry",
    "Retry",
    "RetryAfter",
    "Retryable",
    "Status",
    "Task",
    "TaskContext",
    "TaskDefinition",
    "TaskResult",
    "Why",
    "lambda_handler",
    "sqs_consumer",
    "task",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
