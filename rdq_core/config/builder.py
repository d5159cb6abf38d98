"""Queue configuration written in Python, for stacks and tests: the same document as a file, with an
editor's help.

    from rdq_core.config import builder as rdq

    document = rdq.document(
        {"payments.charge": rdq.Queue(owner="team-payments", retry=rdq.Retry(max_attempts=8))},
        defaults=rdq.Queue(limits=rdq.Limits(task_ttl=timedelta(days=2))),
    )

What is None is not said, as in a file. Durations are timedeltas or text with a unit. `document`
checks all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from typing import Any, Literal

from rdq_core.domain.units import format_duration

Span = str | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a task is tried and how long it waits in between."""

    max_attempts: int | None = None
    backoff: Literal["fixed", "linear", "exponential"] | None = None
    initial_backoff: Span | None = None
    backoff_multiplier: float | None = None
    max_backoff: Span | None = None
    jitter: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How long an attempt may hold its task."""

    lease: Span | None = None
    handler_timeout: Span | None = None
    heartbeat: Span | None = None
    dispatch_give_up: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """Which error types make a failure final."""

    retryable: Sequence[str] | None = None
    permanent: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes, and how long tasks stay after their end."""

    max_payload_size: str | int | None = None
    task_ttl: Span | None = None
    dead_ttl: Span | None = None
    max_redrives: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Who serves the queue, and how fast."""

    host: Literal["auto", "sweeper", "worker", "any"] | None = None
    batch_size: int | None = None
    poll_interval: Span | None = None
    concurrency: int | None = None
    max_sweepers: int | None = None
    rate_limit: str | None = None
    burst: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Answers that tell failure in a field."""

    field: str
    success: Sequence[str] | None = None
    retryable: Sequence[str] | None = None
    permanent: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """The Lambda function that runs a handler ref."""

    function: str
    invocation: Literal["sync", "async"] | None = None
    deliver: Literal["raw", "envelope"] | None = None
    answer: Literal["plain", "http", "sqs"] | None = None
    handler_version: str | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue, or the defaults of all, which have no handlers. The keys mean what they mean in a
    file.
    """

    owner: str | None = None
    runbook: str | None = None
    retry: Retry | None = None
    execution: Execution | None = None
    classification: Classification | None = None
    version_mismatch: Literal["run-latest", "dead-letter"] | None = None
    limits: Limits | None = None
    dispatch: Dispatch | None = None
    index_shards: int | None = None
    handlers: Mapping[str, Handler] | None = None

    def layer(self) -> dict[str, Any]:
        """What the queue says, as under its name in a file; not checked yet."""
        layer: dict[str, Any] = _plain(self)
        return layer


def document(queues: Mapping[str, Queue], *, defaults: Queue | None = None) -> dict[str, Any]:
    """The document of these queues as plain JSON data, in canonical spelling: `json.dumps` of it is
    a file.

    Raises ConfigInvalid, as a file is refused, naming path, value and what is accepted.
    """
    from rdq_core.config.document import document_of
    from rdq_core.config.schema import CONFIG_VERSION

    said = {
        "config_version": CONFIG_VERSION,
        "queues": {name: queue.layer() for name, queue in queues.items()},
    }
    checked = document_of(said | ({} if defaults is None else {"defaults": defaults.layer()}))
    result: dict[str, Any] = {"config_version": CONFIG_VERSION, "queues": dict(checked.queues)}
    return result if defaults is None else result | {"defaults": dict(checked.defaults)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        said = ((each.name, getattr(value, each.name)) for each in fields(value))
        return {name: _plain(held) for name, held in said if held is not None}
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Mapping):
        return {name: _plain(held) for name, held in value.items()}
    return list(value) if isinstance(value, tuple) else value
