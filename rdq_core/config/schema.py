"""Everything that a configuration file may say: its keys, and what each of them accepts.

The mappings are partial on purpose: every layer says only what it wants to say. Validating one
returns it in canonical spelling, as plain JSON data.
"""

import json
import sys
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Final, Required

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from rdq_core.config.accepted import choice, duration, name, number, rate, size, text, whole
from rdq_core.config.settings import Host, VersionMismatch
from rdq_core.config.targets import Answer, Deliver, Invocation
from rdq_core.domain.backoff import JITTER_RANGE, MULTIPLIER_RANGE, BackoffKind
from rdq_core.domain.limits import (
    BACKOFF_RANGE,
    CLAIM_BATCH_RANGE,
    LEASE_RANGE,
    MAX_ATTEMPTS_RANGE,
    MAX_PAYLOAD_BYTES,
    MAX_SHORT_TEXT_BYTES,
    RETENTION_RANGE,
    TIMEOUT_RANGE,
)

CONFIG_VERSION: Final = 1

_STRICT: Final = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)
_HEARTBEAT_RANGE: Final = (timedelta(milliseconds=100), timedelta(hours=24))
_GIVE_UP_RANGE: Final = (timedelta(seconds=1), timedelta(days=30))
_POLL_RANGE: Final = (timedelta(milliseconds=10), timedelta(hours=1))

Glob = Annotated[
    str,
    text("a pattern on error types, where * is any text and ? one character", MAX_SHORT_TEXT_BYTES),
]
OutcomeValue = Annotated[str, text("a value of the answer's field", MAX_SHORT_TEXT_BYTES)]
QueueName = Annotated[str, name("a queue name")]
HandlerRef = Annotated[str, name("a handler ref")]


@with_config(_STRICT)
class RetryKeys(TypedDict, total=False):
    """How often a task is tried and how long it waits in between."""

    max_attempts: Annotated[int, whole(*MAX_ATTEMPTS_RANGE)]
    """Attempts in all, the first included."""
    backoff: Annotated[str, choice(*BackoffKind)]
    """How the wait grows with the failures."""
    initial_backoff: Annotated[str, duration(BACKOFF_RANGE)]
    """The wait after the first failure."""
    backoff_multiplier: Annotated[float, number(*MULTIPLIER_RANGE)]
    """The factor from one wait to the next; for exponential backoff alone."""
    max_backoff: Annotated[str, duration(BACKOFF_RANGE)]
    """The longest wait, before jitter."""
    jitter: Annotated[float, number(*JITTER_RANGE)]
    """The share of itself by which a wait is made shorter or longer at random."""


@with_config(_STRICT)
class ExecutionKeys(TypedDict, total=False):
    """How long an attempt may hold its task."""

    lease: Annotated[str, duration(LEASE_RANGE)]
    """How long a claim lasts without a heartbeat."""
    handler_timeout: Annotated[str, duration(TIMEOUT_RANGE)]
    """How long an attempt may run."""
    heartbeat: Annotated[str, duration(_HEARTBEAT_RANGE, "auto", "off")]
    """How often a lease is renewed; auto is a third of the lease, once the timeout exceeds half of
    it.
    """
    dispatch_give_up: Annotated[str, duration(_GIVE_UP_RANGE)]
    """How long a handler function may be unreachable before its task is dead."""


@with_config(_STRICT)
class ClassificationKeys(TypedDict, total=False):
    """Which error types make a failure final. Where both lists match, permanent wins."""

    retryable: list[Glob]
    """Error types worth another attempt."""
    permanent: list[Glob]
    """Error types that end the task at once."""


@with_config(_STRICT)
class LimitKeys(TypedDict, total=False):
    """Sizes, and how long tasks stay after their end."""

    max_payload_size: Annotated[str | int, size(1, MAX_PAYLOAD_BYTES)]
    """The largest payload that a submit may bring."""
    task_ttl: Annotated[str, duration(RETENTION_RANGE)]
    """How long succeeded and cancelled tasks stay."""
    dead_ttl: Annotated[str, duration(RETENTION_RANGE, "never")]
    """How long dead tasks stay; never means that they don't expire."""
    max_redrives: Annotated[int, whole(0, 10_000)]
    """How often one task may be redriven without force."""


@with_config(_STRICT)
class DispatchKeys(TypedDict, total=False):
    """Who serves the queue, and how fast."""

    host: Annotated[str, choice(*Host)]
    """Which kind of host may serve it; auto is the sweeper when the queue has handlers, else a
    worker.
    """
    batch_size: Annotated[int, whole(*CLAIM_BATCH_RANGE)]
    """Due tasks read at a time."""
    poll_interval: Annotated[str, duration(_POLL_RANGE)]
    """How often a worker looks for due tasks."""
    concurrency: Annotated[int, whole(1, 1000)]
    """Handlers running at once in one sweeper."""
    max_sweepers: Annotated[int, whole(1, 1000)]
    """Sweepers running at once."""
    rate_limit: Annotated[str, rate("none")]
    """Claims over all sweepers together; none lifts a limit that the defaults set."""
    burst: Annotated[int, whole(1, 1_000_000)]
    """Claims allowed at once after a pause; a second's worth unless given."""


@with_config(_STRICT)
class OutcomeKeys(TypedDict, total=False):
    """Answers that tell failure in a field. A value on no list is retryable, never success."""

    field: Annotated[str, text("the name of a field of the answer", MAX_SHORT_TEXT_BYTES)]
    """The answer's field."""
    success: list[OutcomeValue]
    """Values that mean success."""
    retryable: list[OutcomeValue]
    """Values that mean a failure worth another attempt."""
    permanent: list[OutcomeValue]
    """Values that mean a final failure."""


@with_config(_STRICT)
class HandlerKeys(TypedDict, total=False):
    """The Lambda function that runs a handler ref."""

    function: Annotated[
        str, text("a Lambda function's name, name:alias or ARN", MAX_SHORT_TEXT_BYTES)
    ]
    """The function."""
    invocation: Annotated[str, choice(*Invocation)]
    """Whether to wait for the answer (sync) or to hand the task over (async)."""
    deliver: Annotated[str, choice(*Deliver)]
    """raw sends the payload as the function's own event; envelope wraps it."""
    answer: Annotated[str, choice(*Answer)]
    """How the function tells failure; for raw alone."""
    handler_version: Annotated[str, text("a version", MAX_SHORT_TEXT_BYTES)]
    """Compared with the version that a task is pinned to."""
    outcome: OutcomeKeys
    """For plain answers that tell failure in a field."""


class _SharedKeys(TypedDict, total=False):
    owner: Annotated[str, text("a team or person", MAX_SHORT_TEXT_BYTES)]
    """Who is asked about the queue."""
    runbook: Annotated[str, text("a link", 1024)]
    """What operators read when tasks die."""
    retry: RetryKeys
    execution: ExecutionKeys
    classification: ClassificationKeys
    version_mismatch: Annotated[str, choice(*VersionMismatch)]
    """What happens to a task that is pinned to another version."""
    limits: LimitKeys
    dispatch: DispatchKeys
    index_shards: Annotated[int, whole(1, 100)]
    """Partitions of the queue in the index; one carries 250 tasks a second."""


@with_config(_STRICT)
class DefaultsKeys(_SharedKeys, total=False):
    """What this file's queues get unless they say otherwise."""


@with_config(_STRICT)
class QueueKeys(_SharedKeys, total=False):
    """One queue."""

    handlers: dict[HandlerRef, HandlerKeys]
    """Where refs run that are not in the host's own registry."""


@with_config(_STRICT)
class FileKeys(TypedDict, total=False):
    """A queue configuration file."""

    config_version: Required[Annotated[int, whole(CONFIG_VERSION, CONFIG_VERSION)]]
    """The version of this format."""
    defaults: DefaultsKeys
    queues: dict[QueueName, QueueKeys]


@cache
def adapter(keys: Any) -> TypeAdapter[Any]:
    """The validator of one mapping of the above, built when it is first needed."""
    return TypeAdapter[Any](keys)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a file, for editors."""
    schema = adapter(FileKeys).json_schema()
    return (
        {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        | schema
        | {"title": "rdq queue configuration"}
    )


def json_schema_text() -> str:
    """The JSON Schema as it is kept in `docs/queues.schema.json`."""
    return json.dumps(json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(json_schema_text())
