"""Typed tasks: a function with its name, its queue, and the types of its input and output.

A definition is code, never data: only `task` makes one, and a stored task selects it by name alone.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    NoReturn,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from rdq_core.config.effective import effective
from rdq_core.config.settings import Retry
from rdq_core.domain import limits
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.outcome import OutcomeMapper
from rdq_core.domain.task import Task
from rdq_core.engine.context import TaskContext
from rdq_core.engine.ports import Handler
from rdq_core.engine.submit import (
    Receipt,
    SubmitOptions,
    TypedSubmitOptions,
    refuse_unknown,
)
from rdq_core.errors import ConfigInvalid, InputInvalid, OutputInvalid, TaskNotFound
from rdq_core.handlers.detached import detached_context
from rdq_core.handlers.encoding import JSON
from rdq_core.handlers.new_task import NewTask
from rdq_core.handlers.policy import layer_of
from rdq_core.handlers.results import TaskResult, result_of
from rdq_core.handlers.signature import Signature, read_signature
from rdq_core.handlers.strict_json import StrictJson

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741 - the same

_MAKER_TOKEN: Final = object()


class SubmitsTasks(Protocol):
    """What a definition needs of an `Rdq`."""

    def submit(
        self, queue: str, handler_ref: str, payload: object, **options: Unpack[SubmitOptions]
    ) -> Receipt:
        """See `Rdq.submit`."""
        ...

    def get(self, task_id: str, /) -> Task:
        """The task of an id. Raises TaskNotFound."""
        ...

    def _refuse_unregistered(self, handler_ref: str) -> None:
        """Raise NotRegistered for a definition that the application's registry doesn't have."""
        ...


class TaskDefinition(Generic[I, O]):
    """A typed task, made by `task`.

    It replaces the function: `run` calls it here, `submit` makes rdq call it. `name` is its handler
    ref, `queue` the queue of its submits, `version` the handler version that they pin. `options`
    are retry, timeout and retention as a layer of the queue's configuration. `function` is the
    function itself.
    """

    def __init__(
        self,
        made: object,
        *,
        name: str,
        queue: str,
        version: str | None,
        signature: Signature,
        options: Mapping[str, Any],
        strict_input: bool,
        outcome: OutcomeMapper | None,
    ) -> None:
        if made is not _MAKER_TOKEN:
            raise _not_a_definition(self)
        self.name, self.queue, self.version, self.options = name, queue, version, options
        self.function = signature.function
        self._made = made
        self._signature = signature
        self._unknown_fields: Literal["refuse", "ignore"] = "refuse" if strict_input else "ignore"
        self._input = StrictJson(f"tasks.{name}.input", signature.annotation)
        self._output = StrictJson(
            f"tasks.{name}.output", Any if signature.output is None else signature.output
        )
        self._outcome = outcome

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("a TaskDefinition is made by rdq_core.task and has no subclasses")

    # -- for applications --------------------------------------------------------------------------

    def submit(
        self,
        rdq: SubmitsTasks,
        value: I,
        *,
        queue: str | None = None,
        **options: Unpack[TypedSubmitOptions],
    ) -> Receipt:
        """Store this call as a task; see `Rdq.submit` for the options and errors.

        `queue` is another queue than the definition's. The value is checked against the input's
        type first: a wrong type, a missing or an unknown field, NaN, and more than 1 MiB raise
        InputInvalid, and nothing was stored. The task is pinned to the definition's version.
        """
        refuse_unknown("submit", options, TypedSubmitOptions.__optional_keys__)
        task = self.new(value, queue=queue, **options)
        rdq._refuse_unregistered(self.name)  # noqa: SLF001 - for typed tasks, not for users
        return rdq.submit(task.queue, task.handler_ref, task.payload, **task.options)

    def new(
        self, value: I, *, queue: str | None = None, **options: Unpack[TypedSubmitOptions]
    ) -> NewTask:
        """The call as a value, checked as by `submit`, for `Rdq.submit_many` and outboxes."""
        refuse_unknown("new", options, TypedSubmitOptions.__optional_keys__)
        return NewTask(
            self.queue if queue is None else queue,
            self.name,
            self._encoded(value),
            content_type=JSON,
            handler_version=self.version,
            **options,
        )

    def result(self, rdq: SubmitsTasks, task_id: str) -> TaskResult[O]:
        """The task's status and output.

        Raises TaskNotFound when the task doesn't exist or is another definition's, and
        OutputInvalid when the stored output no longer fits this definition.
        """
        task = rdq.get(task_id)
        if task.handler_ref != self.name:
            raise TaskNotFound(
                f"task {task.id} is not of the typed task {self.name!r}", task_id=task.id
            )
        return result_of(task, self._output.decode)

    def run(self, value: I, ctx: TaskContext | None = None) -> O:
        """Call the function in this thread: for tests.

        Without `ctx` it gets a context that is never cancelled. An async function is run to its
        end; inside a running event loop, await `function` instead.
        """
        context = (
            detached_context(self.name, self.queue, self._encoded(value)) if ctx is None else ctx
        )
        returned: O
        if self._signature.is_async:
            returned = asyncio.run(self._signature.call(value, context))
        else:
            returned = self._signature.call(value, context)
        return returned

    def __repr__(self) -> str:
        return f"<task {self.name!r} on queue {self.queue!r}>"

    # -- for the host ------------------------------------------------------------------------------

    @property
    def handler(self) -> Handler:
        """The handler as the engine calls it."""
        return Handler(
            ref=self.name,
            version=self.version,
            decode=self._decode,
            call=self._signature.call,
            encode=self._encode_output,
            is_async=self._signature.is_async,
            outcome=self._outcome,
            definition=self.options,
        )

    def _encoded(self, value: object) -> bytes:
        try:
            content = self._input.encode(value)
        except ValueError as problem:
            raise InputInvalid("payload", str(problem)) from None
        return limits.check_bytes("payload", content, most=limits.MAX_PAYLOAD_BYTES)

    def _decode(self, task: Task) -> Any:
        try:
            return self._input.decode(task.payload, unknown_fields=self._unknown_fields)
        except ValueError as problem:
            raise InputInvalid("payload", str(problem), task_id=task.id) from None

    def _encode_output(self, value: Any) -> Result:
        """The handler's return value as a result; None is an output too, stored as `null`."""
        try:
            return Result(content=self._output.encode(value), content_type=JSON)
        except ValueError as problem:
            raise OutputInvalid(f"result: {problem}") from None


class Define(Protocol):
    """The decorator that `task` returns: plain or async, of (input) or (input, ctx)."""

    @overload
    def __call__(
        self, function: Callable[[I, TaskContext], Coroutine[Any, Any, O]], /
    ) -> TaskDefinition[I, O]: ...
    @overload
    def __call__(
        self, function: Callable[[I], Coroutine[Any, Any, O]], /
    ) -> TaskDefinition[I, O]: ...
    @overload
    def __call__(self, function: Callable[[I, TaskContext], O], /) -> TaskDefinition[I, O]: ...
    @overload
    def __call__(self, function: Callable[[I], O], /) -> TaskDefinition[I, O]: ...


def task(
    name: str,
    *,
    queue: str,
    version: str | None = None,
    retry: Retry | None = None,
    timeout: str | timedelta | None = None,
    retention: str | timedelta | None = None,
    strict_input: bool = True,
    outcome: OutcomeMapper | None = None,
) -> Define:
    """Define a typed task: decorates a plain or async function of (input) or (input, ctx).

    Input and output are strict JSON of their annotations. A submit refuses unknown fields, and so
    does the handler: to add a field to the input, deploy the consumers first. With
    `strict_input=False` handlers ignore unknown fields. Submits pin `version`.

    The keys that `retry` gives, `timeout` of one attempt and `retention` of the ended task, dead
    ones included, apply on hosts that have registered the definition, unless the queue's
    configuration sets the same key. `outcome` maps what the function returned or raised to an
    outcome, and overrules every other rule.

    Raises ConfigInvalid for an invalid or reserved name, a function that can't be called with the
    input, and options out of range.
    """
    path = f"tasks.{name}"
    _check_names(path, name=name, queue=queue, version=version)
    options = layer_of(path, retry=retry, timeout=timeout, retention=retention)
    effective(queue, {}, {}, None, options)

    def define(function: Callable[..., Any]) -> TaskDefinition[Any, Any]:
        signature = read_signature(path, function)
        if signature.annotation is None:
            raise ConfigInvalid(
                f"{path}.input", "has no annotation: annotate the input with its type"
            )
        return TaskDefinition(
            _MAKER_TOKEN,
            name=name,
            queue=queue,
            version=version,
            signature=signature,
            options=options,
            strict_input=strict_input,
            outcome=outcome,
        )

    return define


def check_definition(value: object) -> TaskDefinition[Any, Any]:
    """The value, if `task` made it. Raises ConfigInvalid for anything else."""
    if type(value) is not TaskDefinition or getattr(value, "_made", None) is not _MAKER_TOKEN:
        raise _not_a_definition(value)
    return value


def _check_names(path: str, *, name: object, queue: object, version: object) -> None:
    try:
        limits.check_name("name", name)
        limits.check_name("queue", queue)
        if version is not None:
            limits.check_text("version", version)
    except InputInvalid as refusal:
        raise ConfigInvalid(f"{path}.{refusal.field}", refusal.problem) from None


def _not_a_definition(value: object) -> ConfigInvalid:
    return ConfigInvalid(
        "tasks", f"a {type(value).__name__} is not accepted: only rdq_core.task makes definitions"
    )
