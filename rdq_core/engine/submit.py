"""Submitting: a call becomes a stored task, or is refused before anything is written."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final

from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import leaving_queue
from rdq_core.domain import ids, limits
from rdq_core.domain.attempt import Attempt
from rdq_core.domain.task import DEFAULT_CONTENT_TYPE, Task
from rdq_core.engine.events import EventName, event_of
from rdq_core.engine.ports import Clock, EventSink, IdSource, QueueSource, Submission, TaskStore
from rdq_core.engine.prepared import Prepared, TransactionalStore
from rdq_core.errors import InputInvalid, QueueNotFound, RdqError, Unavailable

MOST_IN_A_RUN: Final = 200
_MOST_BYTES_IN_A_RUN: Final = 8 * limits.MIB


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a submit answers: the task's id and queue, and whether this submit stored it."""

    id: str
    queue: str
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A call as its submitter describes it. `id` and `key` exclude each other; with neither an id
    is minted.

    `key` is a business key: the id is derived from queue and key, so the same key submits once.
    `run_at` is when the task is due, None at once. `traceparent` is the trace that is current, for
    headers that name none. `attempts` are failures that already happened. `unknown` are envelope
    fields of a newer writer.
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
        self,
        store: TaskStore,
        queues: QueueSource,
        *,
        clock: Clock,
        ids: IdSource,
        events: EventSink,
    ) -> None:
        self._store = store
        self._queues = queues
        self._clock = clock
        self._ids = ids
        self._events = events

    def submit(self, draft: Draft) -> Submission:
        """Store the task of a draft.

        Safe to repeat with the same `id` or `key`: the stored task comes back unchanged. Raises
        InputInvalid naming the field, QueueNotFound, TaskConflict when the id is in another queue,
        StoreFailed.
        """
        task, settings = self.check(draft)
        submission = self._store.submit(task, shards=settings.index_shards)
        self._tell(submission)
        return submission

    def submit_many(
        self, drafts: Iterable[Draft | RdqError]
    ) -> Iterator[list[Submission | RdqError]]:
        """What `submit` would answer or raise for each draft, in their order, a run of them at a
        time.

        Drafts are taken a run ahead, and a run is stored before its answers come. An error given in
        a draft's place is its answer. Storage that failed is an answer too: whether to go on is for
        the caller to say.
        """
        drafts = iter(drafts)
        while run := list(_run_of(drafts)):
            yield self._submit_run(run)

    def _submit_run(self, run: Sequence[Draft | RdqError]) -> list[Submission | RdqError]:
        shards: dict[str, int] = {}
        checked = [self._checked_or_refused(draft, shards) for draft in run]
        tasks = [each for each in checked if isinstance(each, Task)]
        stored = iter(self._store.submit_many(tasks, shards_of=shards.__getitem__))
        answers = [next(stored) if isinstance(each, Task) else each for each in checked]
        for answer in answers:
            self._tell(answer)
        return answers

    def _checked_or_refused(
        self, draft: Draft | RdqError, shards: dict[str, int]
    ) -> Task | RdqError:
        if isinstance(draft, RdqError):
            return draft
        try:
            task, settings = self.check(draft)
        except RdqError as refused:
            return refused
        shards[task.queue] = settings.index_shards
        return task

    def prepare(self, draft: Draft) -> Prepared:
        """A submit for the caller's own transaction. Raises as `submit` does, and Unavailable where
        storage has none.

        The event of it is not told: whether the transaction is committed, only the caller finds
        out.
        """
        task, settings = self.check(draft)
        if not isinstance(self._store, TransactionalStore):
            raise Unavailable(
                "this store can't take part in a transaction", hint="prepare needs DynamoDB"
            )
        return self._store.prepare(task, shards=settings.index_shards)

    def check(self, draft: Draft) -> tuple[Task, QueueSettings]:
        """The task that a draft would store and its queue's settings; nothing is written."""
        queue = limits.check_name("queue", draft.queue)
        handler_ref = limits.check_name("handler_ref", draft.handler_ref)
        task_id = self._id_of(draft)
        settings = self._settings(queue, handler_ref)
        now = self._clock.now()
        payload = limits.check_bytes(
            "payload", draft.payload, most=settings.limits.max_payload_size
        )
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

    def _tell(self, answer: Submission | RdqError) -> None:
        if isinstance(answer, Submission) and answer.created:
            self._events.emit(event_of(EventName.SUBMITTED, answer.task))

    def _id_of(self, draft: Draft) -> str:
        if draft.id is not None and draft.key is not None:
            raise InputInvalid("key", "excludes id: give one of them")
        if draft.key is not None:
            return ids.derive_id(
                draft.queue, limits.check_text("key", draft.key, most=limits.MAX_HEADER_BYTES)
            )
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


def _run_of(drafts: Iterator[Draft | RdqError]) -> Iterator[Draft | RdqError]:
    """The next drafts, few and small enough to be held in memory together."""
    size = 0
    for draft in islice(drafts, MOST_IN_A_RUN):
        yield draft
        size += 0 if isinstance(draft, RdqError) else len(draft.payload)
        if size >= _MOST_BYTES_IN_A_RUN:
            return


def _run_at(run_at: datetime | None, now: datetime) -> datetime:
    return now if run_at is None else max(limits.check_run_at(run_at, now=now), now)


def _headers(draft: Draft) -> Mapping[str, str]:
    headers = limits.check_headers(draft.headers, own=draft.own_headers)
    added = {"rdq.key": draft.key, "traceparent": headers.get("traceparent", draft.traceparent)}
    return {**headers, **{name: value for name, value in added.items() if value is not None}}


def _numbered(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """Failures before the submit come first in the history, fenced by nothing."""
    return tuple(
        replace(attempt, attempt_no=number, fencing_token=None)
        for number, attempt in enumerate(attempts, start=1)
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
