"""`Rdq`: submitting, reading and stopping tasks, for programs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from rdq_core.domain import ids
from rdq_core.domain.lifecycle import not_tried
from rdq_core.domain.references import reference_to
from rdq_core.domain.task import Task
from rdq_core.engine.events import Quiet
from rdq_core.engine.ports import Submission
from rdq_core.engine.prepared import Prepared
from rdq_core.engine.submit import Draft, Receipt, SubmitOptions, refuse_unknown
from rdq_core.errors import (
    InputInvalid,
    NotRegistered,
    RdqError,
    StoreFailed,
    TaskNotFound,
    Unavailable,
)
from rdq_core.handlers.encoding import encode
from rdq_core.handlers.new_task import NewTask, new_task_of
from rdq_core.runtime.tracing import current_traceparent
from rdq_core.runtime.wiring import Parts, connect

if TYPE_CHECKING:
    from rdq_core.client.guard import Guard
    from rdq_core.handlers.registry import Registry
    from rdq_core.handlers.results import TaskResult
    from rdq_core.stores.dynamodb.schema import Tables


class Rdq:
    """The client for applications. Safe between threads; make one per process and keep it.

    `client` is a low-level DynamoDB client of boto3, and `tables` names the four tables; the
    environment provides what is not given. `parts` replaces both, for tests and for hosts that
    connect to storage themselves. With a `registry`, submitting a typed task that is not in it
    raises NotRegistered, for applications that run everything they submit.
    """

    def __init__(
        self,
        *,
        client: Any = None,
        tables: "Tables | None" = None,
        parts: Parts | None = None,
        registry: "Registry | None" = None,
    ) -> None:
        self._parts = parts or connect(client, tables, events=Quiet())
        self._registry = registry
        self._submitter = self._parts.submitter()

    @classmethod
    def from_env(cls) -> "Rdq":
        """Connect as the environment says: AWS's own variables and the four `RDQ_*_TABLE`.

        Raises Unavailable naming what is missing.
        """
        return cls()

    # -- submitting --------------------------------------------------------------------------------

    def submit(
        self, queue: str, handler_ref: str, payload: object, **options: Unpack[SubmitOptions]
    ) -> Receipt:
        """Store a call as a task: rdq runs it until it succeeds or is dead-lettered.

        `payload` is bytes as they are, text as UTF-8, or a model, dataclass, dict, list, number,
        bool or None as compact JSON. `SubmitOptions` documents each option; the ones most used are
        `key`, a business key (the same key in the same queue submits once, and finds the task
        again), and `delay`. The current trace becomes the header `traceparent`, unless `headers`
        has one. Once this returns, the task is durable.

        Raises InputInvalid naming the field, QueueNotFound, TaskConflict when the id is in another
        queue, and StoreFailed. Nothing was stored, except perhaps after StoreFailed: repeat that
        call with the same `id` or `key`. An unknown option is a TypeError.
        """
        refuse_unknown("submit", options)
        submission = self._submitter.submit(draft_of(queue, handler_ref, payload, options))
        return Receipt(submission.task.id, submission.task.queue, submission.created)

    def submit_many(
        self,
        tasks: "Iterable[NewTask | Mapping[str, Any]]",
        *,
        on_progress: Callable[[int], object] | None = None,
    ) -> list[Receipt | RdqError]:
        """Submit tasks, each a `NewTask` or a mapping with the same names.

        A request has 25 tasks, and several requests run at a time.

        The answers are in the tasks' order: a receipt for a stored task, the error for one that was
        refused. No error is raised, and a refused task doesn't stop the others. After a failure of
        storage, the tasks that were not under way yet are not tried. Tasks with an `id` or `key`
        are safe to submit again. `on_progress` is called with the number of tasks answered so far.
        """
        items = iter(tasks)
        answers: list[Receipt | RdqError] = []
        for batch in self._submitter.submit_many(_drafts(items)):
            for answer in batch:
                answers.append(_receipt_or_error(answer))
                if on_progress is not None:
                    on_progress(len(answers))
            if any(isinstance(answer, StoreFailed | Unavailable) for answer in batch):
                return [*answers, *(not_tried(None) for _ in items)]
        return answers

    def prepare(
        self, queue: str, handler_ref: str, payload: object, **options: Unpack[SubmitOptions]
    ) -> Prepared:
        """A submit that is part of the application's own DynamoDB transaction.

        Both are committed, or neither is.

            prepared = rdq.prepare("payments.charge", "charge-payment", order, key=order["id"])
            client.transact_write_items(TransactItems=[put_order, *prepared.items])

        Use `prepared.plain_items` with `resource.meta.client`. The items are valid for five
        minutes. A payload that doesn't fit into the task's row is stored now; TTL removes it if the
        transaction is never committed. When the transaction fails, `prepared.explain(error)` says
        whose condition failed, or that only the answer was lost.

        Takes the arguments of `submit` and raises the same errors; Unavailable where tasks aren't
        stored in DynamoDB.
        """
        refuse_unknown("prepare", options)
        return self._submitter.prepare(draft_of(queue, handler_ref, payload, options))

    def guard(
        self,
        queue: str,
        handler_ref: str,
        *,
        on: type[Exception] | tuple[type[Exception], ...],
        max_attempts: int = 1,
        backoff: str | timedelta = "100ms",
        key: Callable[..., str] | None = None,
        payload: Callable[..., object] | None = None,
    ) -> "Guard":
        """Decorate a function: a call that raises one of the `on` exceptions becomes a task.

        The guarded function returns `Done(value)` or `Deferred(id)`. It tries `max_attempts` times
        in this process, waiting `backoff` and then twice as long each time, as far as the Lambda
        invocation's time allows; those failures become the task's first attempts. `payload` is
        called with the function's arguments and returns the task's payload; without it, the
        function's one argument is the payload. `key`, called the same way, returns the business
        key, under which the call becomes a task only once.

        The function's error is raised, and no task is stored, when the error is not in `on`, when
        the queue's rules or a signal make it permanent, when the call comes from an rdq handler
        (the function is the task's handler or is called by it), and when the task of that key is
        running or has ended without success. When the submit itself fails, its error is raised from
        the function's.
        """
        from rdq_core.client.guard import Guard, guard_policy

        policy = guard_policy(
            queue,
            handler_ref,
            on=on,
            max_attempts=max_attempts,
            backoff=backoff,
            key=key,
            payload=payload,
        )
        return Guard(policy, self._parts, {} if self._registry is None else self._registry.classes)

    # -- reading and stopping ----------------------------------------------------------------------

    def get(
        self, task_id: str | None = None, *, queue: str | None = None, key: str | None = None
    ) -> Task:
        """The whole task with its history, by id, or by queue and business key.

        Raises TaskNotFound.
        """
        if (task_id is None) == (key is None) or (key is not None and queue is None):
            raise InputInvalid("id", "give an id, or a queue and a key")
        wanted = ids.derive_id(str(queue), key) if key is not None else ids.check_id(task_id)
        task = self._parts.store.get(wanted)
        if task is None:
            raise TaskNotFound(f"no task {wanted}", task_id=wanted)
        return task

    def result(self, task_id: str) -> "TaskResult[Any]":
        """The task's status and output: JSON data, text or bytes, as its content type says.

        Raises TaskNotFound, and OutputInvalid when the stored output is not what its content type
        says.
        """
        from rdq_core.handlers.results import plain_result

        return plain_result(self.get(task_id))

    def cancel(self, task_id: str) -> Task:
        """Cancel a task that is waiting or running.

        A running handler loses its lease, and its outcome is dropped.

        Raises TaskNotFound, and TaskConflict naming the status of a task that has already ended.
        """
        return self._parts.canceller().cancel(ids.check_id(task_id), op_id=self._parts.ids.nonce())

    def forget(self, *, target: str | None = None, requested_by: str | None = None) -> int:
        """Remove every task with this target or requester, and return the number removed.

        Tasks of any status are removed, with payload, history and result.

        A running handler loses its lease. A submit that is under way is refused (TaskConflict), or
        its task is removed at the next claim. A later submit is kept, where later means two seconds
        or more, because clocks may differ. After StoreFailed call it again: it continues where it
        stopped.
        """
        reference = reference_to(target=target, requested_by=requested_by)
        return self._parts.store.forget(reference, now=self._parts.clock.now())

    def on_error(self, listener: Callable[[BaseException], object]) -> None:
        """Call `listener` with every error that belongs to no task, such as a failing reconciler's.

        A note on the error says where it happened. On AWS the listener gets the errors of the whole
        process, including those of a worker that serves this module's registry. It may be called
        from any thread; an exception that it raises is only logged.
        """
        self._parts.listen(listener)

    def _refuse_unregistered(self, handler_ref: str) -> None:
        """Raise NotRegistered for a typed task that this application's registry doesn't have."""
        if self._registry is not None and self._registry.find(handler_ref) is None:
            raise NotRegistered(
                f"the typed task {handler_ref!r} is not in this application's registry",
                hint="registry.add(definition)",
            )


def parts_of(rdq: Rdq) -> Parts:
    """The parts that an `Rdq` was built from, for hosts, which also run tasks."""
    return rdq._parts  # noqa: SLF001 - hosts need it, users of an Rdq don't


def draft_of(queue: str, handler_ref: str, payload: object, options: SubmitOptions) -> Draft:
    """A call with its payload encoded. Raises InputInvalid for a payload that is not data."""
    try:
        content, content_type = encode(payload)
    except ValueError as problem:
        raise InputInvalid("payload", str(problem)) from None
    if options.get("content_type") is None:
        options = {**options, "content_type": content_type}
    return Draft(
        queue=queue,
        handler_ref=handler_ref,
        payload=content,
        options=options,
        traceparent=current_traceparent(),
    )


def _drafts(items: Iterator[object]) -> Iterator[Draft | RdqError]:
    for item in items:
        try:
            task = new_task_of(item)
            yield draft_of(task.queue, task.handler_ref, task.payload, task.options)
        except RdqError as refusal:
            yield refusal


def _receipt_or_error(answer: Submission | RdqError) -> Receipt | RdqError:
    if isinstance(answer, RdqError):
        return answer
    return Receipt(answer.task.id, answer.task.queue, answer.created)
