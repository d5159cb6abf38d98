"""Submitting: a call becomes a stored task, or is refused before anything is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import leaving_queue
from rdq_core.domain import ids, limits
from rdq_core.domain.attempt import Attempt
from rdq_core.domain.task import DEFAULT_CONTENT_TYPE, Task
from rdq_core.engine.events import EventName, event_of
from rdq_core.engine.ports import Clock, EventSink, IdSource, QueueSource, Submission, TaskStore
from rdq_core.errors import InputInvalid, QueueNotFound


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a submit answers: the task's id and queue, and whether this submit stored it."""

    id: str
    queue: str
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A call as its submitter describes it. `id` and `key` exclude each other; with neither an id is minted.

    `key` is a business key: the id is derived from queue and key, so the same key submits once. `run_at` is when the
    task is due, None at once. `traceparent` is the trace that is current, for headers that name none. `attempts` are
    failures that already happened. `unknown` are envelope fields of a newer writer.
    """

    queue: str
    handler_ref: str
    payload: bytes
    content_type: str = DEFAULT_CONTENT_TYPE
    id: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    own_headers: bool = True
    traceparent: str | None = None
    handler_version: str | None = None
    run_at: datetime | None = None
    concurrency_key: str | None = None
    target: str | None = None
    requested_by: str | None = None
    attempts: tuple[Attempt, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=dict)


class Submitter:
    """Checks drafts against limits and the queue's configuration, and stores them."""

    def __init__(
        self, store: TaskStore, queues: QueueSource, *, clock: Clock, ids: IdSource, events: EventSink
    ) -> None:
        self._store = store
        self._queues = queues
        self._clock = clock
        self._ids = ids
        self._events = events

    def submit(self, draft: Draft) -> Submission:
        """Store the task of a draft.

        Safe to repeat with the same `id` or `key`: the stored task comes back unchanged. Raises InputInvalid naming the
        field, QueueNotFound, TaskConflict when the id is in another queue, StoreFailed.
        """
        task, settings = self.check(draft)
        submission = self._store.submit(task, shards=settings.index_shards)
        if submission.created:
            self._events.emit(event_of(EventName.SUBMITTED, submission.task))
        return submission

    def check(self, draft: Draft) -> tuple[Task, QueueSettings]:
        """The task that a draft would store and its queue's settings; nothing is written."""
        queue = limits.check_name("queue", draft.queue)
        handler_ref = limits.check_name("handler_ref", draft.handler_ref)
        task_id = self._id_of(draft)
        settings = self._settings(queue, handler_ref)
        now = self._clock.now()
        payload = limits.check_bytes("payload", draft.payload, most=settings.limits.max_payload_size)
        return _checked(
            Task(
                id=task_id,
                queue=queue,
                handler_ref=handler_ref,
                handler_version=draft.handler_version,
                payload=payload,
                payload_content_type=draft.content_type,
                headers=_headers(draft),
                next_attempt_at=_run_at(draft.run_at, now),
                created_at=now,
                concurrency_key=draft.concurrency_key,
                target=draft.target,
                requested_by=draft.requested_by,
                attempts=_numbered(draft.attempts),
                unknown=draft.unknown,
            )
        ), settings

    def _id_of(self, draft: Draft) -> str:
        if draft.id is not None and draft.key is not None:
            raise InputInvalid("key", "excludes id: give one of them")
        if draft.key is not None:
            return ids.derive_id(draft.queue, limits.check_text("key", draft.key, most=limits.MAX_HEADER_BYTES))
        return self._ids.task_id() if draft.id is None else ids.check_id(draft.id)

    def _settings(self, queue: str, handler_ref: str) -> QueueSettings:
        try:
            settings = self._queues.for_submits(queue)
        except QueueNotFound as missing:
            if handler_ref in self._queues.all():
                missing.hint = f"{handler_ref!r} is a queue: are queue and handler ref swapped?"
            raise
        if settings.deleting:
            raise leaving_queue(queue)
        return settings


def _run_at(run_at: datetime | None, now: datetime) -> datetime:
    return now if run_at is None else max(limits.check_run_at(run_at, now=now), now)


def _headers(draft: Draft) -> Mapping[str, str]:
    headers = limits.check_headers(draft.headers, own=draft.own_headers)
    added = {"rdq.key": draft.key, "traceparent": headers.get("traceparent", draft.traceparent)}
    return {**headers, **{name: value for name, value in added.items() if value is not None}}


def _numbered(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """Failures before the submit come first in the history, fenced by nothing."""
    return tuple(
        replace(attempt, attempt_no=number, fencing_token=None) for number, attempt in enumerate(attempts, start=1)
    )


def _checked(task: Task) -> Task:
    for name, value in (
        ("handler_version", task.handler_version),
        ("target", task.target),
        ("requested_by", task.requested_by),
    ):
        if value is not None:
            limits.check_text(name, value)
    limits.check_text("content_type", task.payload_content_type)
    limits.check_unknown(task.unknown)
    if task.concurrency_key is None:
        return task
    return replace(task, concurrency_key=limits.check_concurrency_key(task.concurrency_key))
