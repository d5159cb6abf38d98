"""Events about tasks: one for each transition, emitted after the write that made it true.

An event has no field for payloads, header values or results, so none of them can be logged by
accident.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.task import Task

_TRACEPARENT_PARTS: Final = 4
_TRACE_ID = re.compile("(?!0{32})[0-9a-f]{32}")


class EventName(StrEnum):
    """The names are final: dashboards and log queries depend on them."""

    SUBMITTED = "submitted"
    CLAIMED = "claimed"
    HEARTBEAT_LOST = "heartbeat_lost"
    SUCCEEDED = "succeeded"
    RETRY_SCHEDULED = "retry_scheduled"
    DEAD_LETTERED = "dead_lettered"
    DEAD_EXPIRED = "dead_expired"
    RELEASED = "released"
    CANCELLED = "cancelled"
    REDRIVEN = "redriven"
    PURGED = "purged"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One transition of one task. Fields that don't apply are None.

    `rule` names the classification rule that decided the outcome, `code` is the failure's,
    `trace_id` comes from the task's `traceparent`. `lateness_ms` is the time from due to claimed,
    `claim_latency_ms` what storage took for the claim, `duration_ms` from the claim to the outcome,
    `delay_ms` from the outcome to the next attempt.
    """

    name: EventName
    task_id: str
    queue: str
    handler_ref: str
    attempt_no: int | None = None
    fencing_token: int | None = None
    outcome: Outcome | None = None
    rule: str | None = None
    code: str | None = None
    error_type: str | None = None
    trace_id: str | None = None
    lateness_ms: int | None = None
    claim_latency_ms: int | None = None
    duration_ms: int | None = None
    delay_ms: int | None = None


class Quiet:
    """An `EventSink` that drops every event."""

    def emit(self, event: Event) -> None:
        """Drop the event."""


def event_of(name: EventName, task: Task, **details: Any) -> Event:
    """An event about a task, with the trace it was submitted under."""
    return Event(
        name=name,
        task_id=task.id,
        queue=task.queue,
        handler_ref=task.handler_ref,
        trace_id=trace_id(task.headers),
        **details,
    )


def trace_id(headers: Mapping[str, str]) -> str | None:
    """The trace id in a W3C `traceparent` header; None when it is absent or malformed."""
    # W3C Trace Context: version-traceid-parentid-flags; an all-zero id is invalid.
    parts = headers.get("traceparent", "").split("-")
    well_formed = len(parts) >= _TRACEPARENT_PARTS and _TRACE_ID.fullmatch(parts[1])
    return parts[1] if well_formed else None
