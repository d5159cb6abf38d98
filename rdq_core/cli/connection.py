"""Which AWS a command works on: the environment's, with default table names on an engine of this machine."""

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from rdq_core.engine.audit import Principal
from rdq_core.engine.ports import EventSink
from rdq_core.runtime.wiring import Parts, connect
from rdq_core.stores.dynamodb.schema import Tables

LOCAL_TABLES: Final = Tables(tasks="rdq-tasks", dlq="rdq-dlq", control="rdq-control", audit="rdq-audit")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_local(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `AWS_ENDPOINT_URL` points at this machine."""
    host = urlsplit(environ.get("AWS_ENDPOINT_URL", "")).hostname or ""
    return host in _LOOPBACK or host.endswith(".localhost")


def tables_in(environ: Mapping[str, str] = os.environ) -> Tables:
    """The tables' names. On a local engine those that aren't set are `rdq-tasks`, `rdq-dlq`, `rdq-control` and
    `rdq-audit`; on AWS all four must be.
    """
    return Tables.from_env({**LOCAL_TABLES.as_env(), **environ} if is_local(environ) else environ)


def parts(events: EventSink | None = None) -> Parts:
    """The store and the configuration that the environment names. Raises Unavailable naming what is missing."""
    from rdq_core.runtime.log import Quiet

    return connect(tables=tables_in(), events=events or Quiet())


def principal(environ: Mapping[str, str] = os.environ) -> Principal:
    """Who is at the keyboard, for the audit log: the IAM identity, on a local engine what the environment says."""
    from rdq_core.runtime.principal import claimed, identified

    return claimed(environ) if is_local(environ) else identified(environ)
