"""The tables that the environment names, for programs and the command line alike."""

import os
from collections.abc import Mapping
from typing import Final

from rdq_core.stores.dynamodb.request_failures import is_loopback
from rdq_core.stores.dynamodb.schema import Tables

ENDPOINT: Final = "AWS_ENDPOINT_URL"
LOCAL_TABLES: Final = Tables(
    tasks="rdq-tasks", dlq="rdq-dlq", control="rdq-control", audit="rdq-audit"
)


def is_local(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `AWS_ENDPOINT_URL` is an address of this machine."""
    return is_loopback(environ.get(ENDPOINT, ""))


def tables_in(environ: Mapping[str, str] = os.environ) -> Tables:
    """The tables' names.

    On AWS all four variables must be set; on a local engine they default to `rdq-tasks`, `rdq-dlq`,
    `rdq-control` and `rdq-audit`. Raises Unavailable naming each variable that is missing or wrong.
    """
    return Tables.from_env({**LOCAL_TABLES.as_env(), **environ} if is_local(environ) else environ)
