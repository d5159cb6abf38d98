"""What the environment says about where rdq's tables are; the same for programs and for the command
line.
"""

import os
from collections.abc import Mapping
from typing import Final

from rdq_core.stores.dynamodb.faults import is_loopback
from rdq_core.stores.dynamodb.schema import Tables

ENDPOINT: Final = "AWS_ENDPOINT_URL"
LOCAL_TABLES: Final = Tables(
    tasks="rdq-tasks", dlq="rdq-dlq", control="rdq-control", audit="rdq-audit"
)


def is_local(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `AWS_ENDPOINT_URL` points at this machine."""
    return is_loopback(environ.get(ENDPOINT, ""))


def tables_in(environ: Mapping[str, str] = os.environ) -> Tables:
    """The tables' names. On a local engine those that aren't set are `rdq-tasks`, `rdq-dlq`,
    `rdq-control` and `rdq-audit`; on AWS all four must be. Raises Unavailable naming each variable
    that is wrong.
    """
    return Tables.from_env({**LOCAL_TABLES.as_env(), **environ} if is_local(environ) else environ)
