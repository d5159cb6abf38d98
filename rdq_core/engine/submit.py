"""Submitting: a call becomes a stored task, or is refused before anything is written.

    SubmitOptions ─► Draft ─► Task ─► the store's rows

`SubmitOptions` is the one list of options. Every door takes its names from it: `Rdq`, typed tasks,
the command line, task files and the intake function.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, TypedDict

from rdq_core.config.messages import did_you_mean
from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import leaving_queue
from rdq_core.domain import ids, limits
from rdq_core.domain.attempt import Attempt
from rdq_core.domain.task import DEFAULT_CONTENT_TYPE, Task
from rdq_core.domain.units import parse_duration
from rdq_core.engine.events import EventName, event_of
from rdq_core.engine.ports import Clock, EventSink, IdSource, QueueSource, Submission, TaskStore
from rdq_core.engine.prepared import Prepared, TransactionalStore
from rdq_core.errors import InputInvalid, QueueNotFound, RdqError, Unavailable

_BATCH_TASKS: Final = 200
_BATCH_BYTES: Final = 8 * limits.MIB


class TypedSubmitOptions(TypedDict, total=False):
    """The options of a submit, without the two that a typed task's definition decides.

    None is the same as leaving an option out.
    """

    id: str | None
    """The task's id, a ULID. Excludes `key`; with neither, an id is made."""
    key: str | None
    """A business key: the same key in the same queue is submitted once."""
    headers: Mapping[str, str] | None
    """Text beside the payload, for the handler and for tracing."""
    run_at: datetime | None
    """When the task is due, with a time zone; a moment in the past means now."""
    delay: str | timedelta | None
    """How long until the task is due, such as "30s". Excludes `run_at`."""
    concurrency_key: str | None
    """Tasks of one key run one after the other."""
    target: str | None
    """What the task is about, such as "order:88213": `forget` removes tasks by it."""
    requested_by: str | None
    """Who asked for the task: `forget` removes tasks by it."""


class SubmitOptions(TypedSubmitOptions, total=False):
    """The options of a submit: all that it accepts beside queue, handler ref and payload."""

    content_type: str | None
    """The payload's media type. Left out, the payload's Python type decides."""
    handler_version: str | None
    """Run the task only by handlers of this version."""


SUBMIT_OPTIONS: Final[frozenset[str]] = SubmitOptions.__optional_keys__


def refuse_unknown(
    call: str, given: Iterable[str], known: Collection[str] = SUBMIT_OPTIONS
) -> None:
    """Raise the TypeError that Python raises for a keyword argument which `call` doesn't have."""
    for name in given:
        if name not in known:
            meant = did_you_mean(name, sorted(known))
            raise TypeError(
                f"{call}() got an unexpected keyword argument {name!r}{meant and '; ' + meant}"
            )


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a submit returns: the task's id and queue, and whether this submit stored it."""

    id: str
    queue: str
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A call that is to become a task, with its payload as bytes; nothing is checked yet.

    `attempts` are failures from before the submit, which become the first of the history.
    `unknown` are envelope fields of a newer writer, which the task carries along. `traceparent` is
    the current trace, for headers that have none. `own_headers` are the caller's, which may not
    start with `rdq.`; False is for headers that rdq or another service has written.
    """

    queue: str
    handler_ref: str
    payload: bytes
    options: SubmitOptions = field(default_factory=SubmitOptions)
    own_headers: bool = True
    traceparent: str | None = None
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
        # A repeated submit emits nothing, or the task would be counted twice.
        if submission.created:
            self._events.emit(event_of(EventName.SUBMITTED, submission.task))
        return submission

    def submit_many(
        self, drafts: Iterable[Draft | RdqError]
    ) -> Iterator[list[Submission | RdqError]]:
        """What `submit` would return or raise for each draft, in their order, in batches.

        An error in a draft's place is its answer. A batch is read from `drafts`, stored, and then
        yielded. A failure of storage is an answer too; the caller decides whether to go on.
        """
        drafts = iter(drafts)
        while batch := list(_batch_of(drafts)):
            yield self._submit_batch(batch)

    def prepare(self, draft: Draft) -> Prepared:
        """A submit for the caller's own transaction. Raises as `submit` does, and Unavailable where
        the store has no transactions.

        No event is emitted: only the caller learns whether the transaction was committed.
        """
        task, settings = self.check(draft)
        if not isinstance(self._store, TransactionalStore):
            raise Unavailable(
                "this store can't take part in a transaction", hint="prepare needs DynamoDB"
            )
        return self._store.prepare(task, shards=settings.index_shards)

    def check(self, draft: Draft) -> tuple[Task, QueueSettings]:
        """The task that a draft would store, and its queue's settings; nothing is written."""
        options = draft.options
        queue = limits.check_name("queue", draft.queue)
        handler_ref = limits.check_name("handler_ref", draft.handler_ref)
        task_id = self._id_of(queue, options)
        settings = self._settings(queue, handler_ref)
        # One reading for both times: a task without a delay is due when it was created, exactly.
        now = self._clock.now()
        content_type, key = options.get("content_type"), options.get("concurrency_key")
        if draft.unknown:
            limits.check_unknown(draft.unknown)
        return Task(
            id=task_id,
            queue=queue,
            handler_ref=handler_ref,
            handler_version=_short_text("handler_version", options.get("handler_version")),
            payload=limits.check_bytes(
                "payload", draft.payload, most=settings.limits.max_payload_size
            ),
            payload_content_type=limits.check_text(
                "content_type", DEFAULT_CONTENT_TYPE if content_type is None else content_type
            ),
            headers=_headers(draft),
            next_attempt_at=due_at(options, now),
            created_at=now,
            concurrency_key=None if key is None else limits.check_concurrency_key(key),
            target=_short_text("target", options.get("target")),
            requested_by=_short_text("requested_by", options.get("requested_by")),
            attempts=_numbered(draft.attempts) if draft.attempts else (),
            unknown=draft.unknown,
        ), settings

    def _submit_batch(self, batch: Sequence[Draft | RdqError]) -> list[Submission | RdqError]:
        shards: dict[str, int] = {}
        checked = [self._checked_or_refused(draft, shards) for draft in batch]
        tasks = [each for each in checked if isinstance(each, Task)]
        stored = iter(self._store.submit_many(tasks, shards_of=shards.__getitem__))
        answers = [next(stored) if isinstance(each, Task) else each for each in checked]
        for answer in answers:
            if isinstance(answer, Submission) and answer.created:
                self._events.emit(event_of(EventName.SUBMITTED, answer.task))
        return answers

    def _checked_or_refused(
        self, draft: Draft | RdqError, shards: dict[str, int]
    ) -> Task | RdqError:
        if isinstance(draft, RdqError):
            return draft
        try:
            task, settings = self.check(draft)
        except RdqError as refusal:
            return refusal
        # The newest settings count for the whole batch: the store places tasks by queue.
        shards[task.queue] = settings.index_shards
        return task

    def _id_of(self, queue: str, options: SubmitOptions) -> str:
        task_id, key = options.get("id"), options.get("key")
        if key is None:
            return self._ids.task_id() if task_id is None else ids.check_id(task_id)
        if task_id is not None:
            raise InputInvalid("key", "excludes id: give one of them")
        return ids.derive_id(queue, limits.check_text("key", key, most=limits.MAX_HEADER_BYTES))

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


def _batch_of(drafts: Iterator[Draft | RdqError]) -> Iterator[Draft | RdqError]:
    """The next drafts, bounded in number and bytes: a batch is held in memory."""
    size = 0
    for draft in islice(drafts, _BATCH_TASKS):
        yield draft
        size += 0 if isinstance(draft, RdqError) else len(draft.payload)
        if size >= _BATCH_BYTES:
            return


def due_at(options: SubmitOptions, now: datetime) -> datetime:
    """When a task with these options is due: the only place that resolves `run_at` and `delay`.

    Raises InputInvalid naming the option.
    """
    run_at, delay = options.get("run_at"), options.get("delay")
    if delay is not None:
        if run_at is not None:
            raise InputInvalid("delay", "excludes run_at: give one of them")
        try:
            run_at = now + parse_duration(delay)
        except ValueError as problem:
            raise InputInvalid("delay", str(problem)) from None
        except OverflowError:
            raise InputInvalid("delay", f"is more than {limits.MAX_RUN_AHEAD.days} days") from None
    return now if run_at is None else max(limits.check_run_at(run_at, now=now), now)


def _headers(draft: Draft) -> Mapping[str, str]:
    given = draft.options.get("headers")
    headers = limits.check_headers({} if given is None else given, own=draft.own_headers)
    if (key := draft.options.get("key")) is not None:
        # After the check, which refuses such names from callers.
        headers["rdq.key"] = key
    if draft.traceparent is not None:
        headers.setdefault("traceparent", draft.traceparent)
    return headers


def _numbered(attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """Failures from before the submit as the first of the history. No claim fences them."""
    return tuple(
        replace(attempt, attempt_no=number, fencing_token=None)
        for number, attempt in enumerate(attempts, start=1)
    )


def _short_text(name: str, value: object) -> str | None:
    return None if value is None else limits.check_text(name, value)
