"""A call that shall become a task, as its submitter writes it down: with plain values instead of
bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.units import parse_duration
from rdq_core.engine.submit import Draft
from rdq_core.errors import InputInvalid
from rdq_core.handlers.encoding import encode


@dataclass(frozen=True, slots=True)
class NewTask:
    """One call for `Rdq.submit_many`: the arguments of `Rdq.submit`, as a value."""

    queue: str
    handler_ref: str
    payload: object
    id: str | None = None
    key: str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    handler_version: str | None = None
    run_at: datetime | None = None
    delay: str | timedelta | None = None
    concurrency_key: str | None = None
    target: str | None = None
    requested_by: str | None = None


def new_task_of(item: object) -> NewTask:
    """A `NewTask` as it is, or the one that a mapping of the same names describes. InputInvalid for
    others.
    """
    if isinstance(item, NewTask):
        return item
    if not isinstance(item, Mapping):
        raise InputInvalid(
            "task", f"must be a NewTask or a mapping of its fields, not {type(item).__name__}"
        )
    for name in item:
        if name not in _FIELDS:
            raise InputInvalid(str(name)[:_LONGEST_NAME], "is no argument of submit")
    for name in _REQUIRED:
        if name not in item:
            raise InputInvalid(name, "is missing")
    return NewTask(**item)


def draft_of(
    task: NewTask,
    *,
    now: datetime,
    traceparent: str | None = None,
    attempts: tuple[Attempt, ...] = (),
) -> Draft:
    """The call with its payload encoded and its time settled. InputInvalid names what can't be."""
    content, content_type = encoded(task.payload)
    return Draft(
        queue=task.queue,
        handler_ref=task.handler_ref,
        payload=content,
        content_type=content_type if task.content_type is None else task.content_type,
        id=task.id,
        key=task.key,
        headers={} if task.headers is None else task.headers,
        traceparent=traceparent,
        handler_version=task.handler_version,
        run_at=_run_at(task, now),
        concurrency_key=task.concurrency_key,
        target=task.target,
        requested_by=task.requested_by,
        attempts=attempts,
    )


def encoded(payload: object) -> tuple[bytes, str]:
    """The payload's bytes and content type. InputInvalid for what is no data."""
    try:
        return encode(payload)
    except ValueError as problem:
        raise InputInvalid("payload", str(problem)) from None


def _run_at(task: NewTask, now: datetime) -> datetime | None:
    if task.delay is None:
        return task.run_at
    if task.run_at is not None:
        raise InputInvalid("delay", "excludes run_at: give one of them")
    try:
        return now + parse_duration(task.delay)
    except ValueError as problem:
        raise InputInvalid("delay", str(problem)) from None


_FIELDS: Final = frozenset(field.name for field in fields(NewTask))
_LONGEST_NAME: Final = 80
_REQUIRED: Final[tuple[str, ...]] = ("queue", "handler_ref", "payload")
