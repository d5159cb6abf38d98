"""Operator requests: JSON documents, checked before anything is done, each answered by one class.

The command line and the ops function both come in here, so neither can do anything that the other
can't. A new request is a class in one of these modules, declared with `@operation`.
"""

from rdq_core.ops.requests import (  # noqa: F401 - importing them declares their operations
    audit_requests,
    dead_letter_requests,
    job_requests,
    queue_requests,
    task_requests,
)
from rdq_core.ops.requests.answering import answer
from rdq_core.ops.requests.context import OPERATIONS

__all__ = ["OPERATIONS", "answer"]
