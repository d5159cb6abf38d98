"""rdq: durable retries with a dead-letter queue, on DynamoDB and Lambda.

The public names are loaded when they are first asked for, so that importing rdq costs a cold start nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rdq_core.client.rdq import Rdq as Rdq
    from rdq_core.client.rdq import Receipt as Receipt
    from rdq_core.domain.attempt import Outcome as Outcome
    from rdq_core.domain.outcome import Abort as Abort
    from rdq_core.domain.outcome import Retryable as Retryable
    from rdq_core.domain.outcome import RetryAfter as RetryAfter
    from rdq_core.domain.task import Status as Status
    from rdq_core.domain.task import Task as Task
    from rdq_core.engine.context import TaskContext as TaskContext
    from rdq_core.handlers.registry import Registry as Registry

_HOME: Final = {
    "Abort": "rdq_core.domain.outcome",
    "Outcome": "rdq_core.domain.attempt",
    "Rdq": "rdq_core.client.rdq",
    "Receipt": "rdq_core.client.rdq",
    "Registry": "rdq_core.handlers.registry",
    "RetryAfter": "rdq_core.domain.outcome",
    "Retryable": "rdq_core.domain.outcome",
    "Status": "rdq_core.domain.task",
    "Task": "rdq_core.domain.task",
    "TaskContext": "rdq_core.engine.context",
}

__all__ = [
    "Abort",
    "Outcome",
    "Rdq",
    "Receipt",
    "Registry",
    "RetryAfter",
    "Retryable",
    "Status",
    "Task",
    "TaskContext",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
