"""`Rdq`: submitting, reading and stopping tasks, for programs."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rdq_core.config.settings import Classification
from rdq_core.domain import ids, limits
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.references import Reference, ReferenceKind
from rdq_core.domain.task import Task
from rdq_core.engine.ports import Submission
from rdq_core.engine.prepared import Prepared
from rdq_core.engine.submit import Draft, Receipt
from rdq_core.errors import InputInvalid, NotRegistered, RdqError, TaskNotFound
from rdq_core.handlers.new_task import NewTask, draft_of
from rdq_core.runtime.log import Quiet
from rdq_core.runtime.tracing import current_traceparent
from rdq_core.runtime.wiring import Parts, connect

if TYPE_CHECKING:
    from rdq_core.client.guard import Guard
    from rdq_core.handlers.registry import Registry
    from rdq_core.handlers.results import TaskResult
    from rdq_core.handlers.typed import TaskDefinition
    from rdq_core.stores.dynamodb.schema import Tables


class Rdq:
    """The way in for programs. Safe between threads; make one a process and keep it.

    `client` is a low-level DynamoDB client of boto3 and `tables` the four names; what is left out
    comes from the environment. `parts` replaces both, for tests and for hosts that are put together
    differently. With a `registry`, typed tasks that are not in it are refused (NotRegistered): for
    applications that run all that they submit.
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
        """On the environment's AWS and the four `RDQ_*_TABLE` variables. Unavailable names what is
        missing.
        """
        return cls()

    @property
    def parts(self) -> Parts:
        """What it is made of, for hosts that are put together differently."""
        return self._parts

    # -- submitting --------------------------------------------------------------------------------

    def submit(
        self,
        queue: str,
        handler_ref: str,
        payload: object,
        *,
        id: str | None = None,  # noqa: A002 - the field's own name
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
        handler_version: str | None = None,
        run_at: datetime | None = None,
        delay: str | timedelta | None = None,
        concurrency_key: str | None = None,
        target: str | None = None,
        requested_by: str | None = None,
    ) -> Receipt:
        """Keep a call until it has succeeded or rests in the DLQ.

        `payload` is bytes as they stand, text as UTF-8, or a model, dataclass, dict, list, number,
        bool or None as compact JSON. `key` is a business key: the same key in the same queue
        submits once, and finds the task again. `run_at` is an aware datetime, `delay` a duration
        such as "30s". The trace that is current becomes the header `traceparent`, unless `headers`
        have one. Once this returns the task is durable.

        Raises InputInvalid naming the field, QueueNotFound, TaskConflict when the id is in another
        queue, and StoreFailed; in each case but the last nothing was stored. After StoreFailed
        repeat the call with the same `id` or `key`.
        """
        return self.send(
            NewTask(
                queue,
                handler_ref,
                payload,
                id=id,
                key=key,
                headers=headers,
                content_type=content_type,
                handler_version=handler_version,
                run_at=run_at,
                delay=delay,
                concurrency_key=concurrency_key,
                target=target,
                requested_by=requested_by,
            )
        )

    def submit_many(
        self,
        tasks: "Iterable[NewTask | Mapping[str, Any]]",
        *,
        on_progress: Callable[[int], object] | None = None,
    ) -> list[Receipt | RdqError]:
        """Submit tasks, each a `NewTask` or a mapping of the same names, 25 a request and several
        requests at a time.

        The answers come in the tasks' order: a receipt for what is stored, the error for what is
        not. None is raised, and a refused task keeps no other one out; once storage has failed,
        what wasn't under way is not tried. Tasks with an `id` or `key` are safe to submit again.
        `on_progress` is called with the number of tasks that are done.
        """
        from rdq_core.client.many import submit_all

        return submit_all(tasks, self._draft, self._submitter, on_progress)

    def prepare(
        self,
        queue: str,
        handler_ref: str,
        payload: object,
        *,
        id: str | None = None,  # noqa: A002 - the field's own name
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
        handler_version: str | None = None,
        run_at: datetime | None = None,
        delay: str | timedelta | None = None,
        concurrency_key: str | None = None,
        target: str | None = None,
        requested_by: str | None = None,
    ) -> Prepared:
        """A submit that becomes part of the application's own DynamoDB transaction: both are
        committed, or neither.

            prepared = rdq.prepare("payments.charge", "charge-payment", order, key=order["id"])
            client.transact_write_items(TransactItems=[put_order, *prepared.items])

        `prepared.plain_items` are for `resource.meta.client`. The items are good for five minutes.
        A payload that doesn't fit into the task's row is stored now, and goes by itself if nothing
        is committed. Should the transaction fail, `prepared.explain(error)` says whose condition it
        was, or that only the answer was lost.

        Arguments and refusals are those of `submit`; Unavailable where tasks aren't stored in
        DynamoDB.
        """
        task = NewTask(
            queue,
            handler_ref,
            payload,
            id=id,
            key=key,
            headers=headers,
            content_type=content_type,
            handler_version=handler_version,
            run_at=run_at,
            delay=delay,
            concurrency_key=concurrency_key,
            target=target,
            requested_by=requested_by,
        )
        return self._submitter.prepare(self._draft(task))

    def send(self, task: NewTask, *, of: "TaskDefinition[Any, Any] | None" = None) -> Receipt:
        """`submit` for a call that is a value already. `of` is the definition that it was made by,
        if any.
        """
        if of is not None and self._registry is not None and self._registry.find(of.name) is None:
            raise NotRegistered(
                f"the typed task {of.name!r} is not in this application's registry",
                hint="registry.add(definition)",
            )
        submission = self.keep(task)
        return Receipt(submission.task.id, submission.task.queue, submission.created)

    def keep(self, task: NewTask, attempts: tuple[Attempt, ...] = ()) -> Submission:
        """`submit` for calls that have failed before: `attempts` become the first of the history,
        and spend no budget.

        The answer has the task as it is stored, however far it has got.
        """
        return self._submitter.submit(self._draft(task, attempts))

    def _draft(self, task: NewTask, attempts: tuple[Attempt, ...] = ()) -> Draft:
        return draft_of(
            task, now=self._parts.clock.now(), traceparent=current_traceparent(), attempts=attempts
        )

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
        """Decorate a function whose call becomes a task when it fails with one of the `on`
        exceptions.

        The guarded function answers `Done(value)` or `Deferred(id)`. It tries `max_attempts` times
        in this process, `backoff` and then twice as long apart, as far as the Lambda's time allows;
        the failures become the task's first attempts. `payload` says what the task keeps, and is
        called as the function is; without it, that is the one argument. `key`, called the same way,
        gives the business key, so that the call becomes a task only once.

        An error is raised, and not kept, when it is not in `on`, when the queue or a signal calls
        it permanent, when the call is made by rdq itself (the function is the task's handler, or
        below it), and when the task of that key is just being run or has ended without success. A
        submit that fails is raised, from the error.
        """
        from rdq_core.client.guard import Guard, World, policy_of

        policy = policy_of(
            queue,
            handler_ref,
            on=on,
            max_attempts=max_attempts,
            backoff=backoff,
            key=key,
            payload=payload,
        )
        world = World(clock=self._parts.clock, jitter=self._parts.jitter, sleeper=self._parts.idle)
        return Guard(policy, self, world)

    def rules(
        self, queue: str
    ) -> tuple[Classification, Mapping[type[BaseException], Outcome]]:
        """How the failures of a queue's calls are classified: its globs, and the classes decided in
        the registry.
        """
        return self._parts.queues.for_submits(
            queue
        ).classification, self._registry.classes if self._registry else {}

    # -- reading and stopping ----------------------------------------------------------------------

    def get(
        self, task_id: str | None = None, *, queue: str | None = None, key: str | None = None
    ) -> Task:
        """The whole task with its history, by id, or by queue and business key. Raises
        TaskNotFound.
        """
        if (task_id is None) == (key is None) or (key is not None and queue is None):
            raise InputInvalid("id", "give an id, or a queue and a key")
        wanted = ids.derive_id(str(queue), key) if key is not None else ids.check_id(task_id)
        task = self._parts.store.get(wanted)
        if task is None:
            raise TaskNotFound(f"no task {wanted}", task_id=wanted)
        return task

    def result(self, task_id: str) -> "TaskResult[Any]":
        """How far a task has got, and its output: JSON data, text or bytes, as its content type
        says.

        Raises TaskNotFound, and OutputInvalid when the stored output is not what its content type
        says.
        """
        from rdq_core.handlers.results import plain_result

        return plain_result(self.get(task_id))

    def cancel(self, task_id: str) -> Task:
        """Stop a task that waits or runs. A handler that is running finds its lease lost, and its
        outcome is dropped.

        Raises TaskNotFound, and TaskConflict naming the state of a task that has ended already.
        """
        return self._parts.canceller().cancel(ids.check_id(task_id), op_id=self._parts.ids.nonce())

    def forget(self, *, target: str | None = None, requested_by: str | None = None) -> int:
        """Remove every task with this target, or of this requester, in any status, with payload,
        history and result.

        The answer is how many there were. A handler that is running finds its lease lost. A submit
        that is under way is refused (TaskConflict) or removed by the next claim; what is submitted
        later stays. So that clocks may differ a little, later means two seconds. After StoreFailed
        repeat it: it goes on where it had stopped.
        """
        given = [(ReferenceKind.TARGET, target), (ReferenceKind.REQUESTED_BY, requested_by)]
        match [(kind, value) for kind, value in given if value is not None]:
            case [(kind, value)]:
                reference = Reference(kind, limits.check_text(kind, value))
                return self._parts.store.forget(reference, now=self._parts.clock.now())
        raise InputInvalid("target", "give a target or a requested_by")

    def on_error(self, listener: Callable[[BaseException], object]) -> None:
        """Call `listener` with every error that has no task to be stored on, such as a failing
        reconciler's.

        A note on the error says where it happened. On AWS that holds for all of this process, a
        worker that serves this module's registry included. The listener may be called from any
        thread, and what it raises is only logged.
        """
        self._parts.listen(listener)
