"""Typed tasks: a function with its name, its queue, and the types that go in and come out.

A definition is code, never data: only what `task` has made is one, and a stored task can select it
by name alone.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Literal, NoReturn, Protocol, TypeVar, overload

from rdq_core.config.effective import effective
from rdq_core.config.settings import Retry
from rdq_core.domain import limits
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.outcome import OutcomeMapper
from rdq_core.domain.task import Task
from rdq_core.engine.context import TaskContext
from rdq_core.engine.ports import Handler
from rdq_core.engine.submit import Receipt
from rdq_core.errors import ConfigInvalid, InputInvalid, OutputInvalid, TaskNotFound
from rdq_core.handlers.encoding import JSON
from rdq_core.handlers.new_task import NewTask
from rdq_core.handlers.policy import layer_of
from rdq_core.handlers.results import TaskResult, result_of
from rdq_core.handlers.signature import Signature, read_signature
from rdq_core.handlers.strict_json import StrictJson
from rdq_core.handlers.trial import trial_context

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741 - the same

_MADE_BY_TASK: Final = object()


class Tasks(Protocol):
    """What a definition needs of an `Rdq`."""

    def send(self, task: NewTask, *, of: "TaskDefinition[Any, Any] | None" = None) -> Receipt:
        """Submit a task, of a definition when one is given."""
        ...

    def get(self, task_id: str, /) -> Task:
        """The task of an id. Raises TaskNotFound."""
        ...


class TaskDefinition(Generic[I, O]):
    """A typed task, made by `task`. It is no function any more: `run` calls it, `submit` lets rdq
    call it.

    `name` is its handler ref, `queue` where it is submitted unless told otherwise, `version` what
    submits pin. `options` are what it was defined with, as a layer of its queue's configuration,
    `function` is the function itself.
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
        if made is not _MADE_BY_TASK:
            raise _not_ours(self)
        self.name, self.queue, self.version, self.options = name, queue, version, options
        self.function = signature.function
        self._made = made
        self._signature = signature
        self._unknown_fields: Literal["refuse", "let pass"] = (
            "refuse" if strict_input else "let pass"
        )
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
        rdq: Tasks,
        value: I,
        *,
        queue: str | None = None,
        id: str | None = None,  # noqa: A002 - the field's own name
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        run_at: datetime | None = None,
        delay: str | timedelta | None = None,
        concurrency_key: str | None = None,
        target: str | None = None,
        requested_by: str | None = None,
    ) -> Receipt:
        """Keep this call until it has succeeded or rests in the DLQ; see `Rdq.submit` for the
        options.

        The value is checked against the input's type first: a wrong type, a missing or an unknown
        field, NaN and what is over 1 MiB are InputInvalid, and nothing was stored. The task is
        pinned to the definition's version.
        """
        task = self.new(
            value,
            queue=queue,
            id=id,
            key=key,
            headers=headers,
            run_at=run_at,
            delay=delay,
            concurrency_key=concurrency_key,
            target=target,
            requested_by=requested_by,
        )
        return rdq.send(task, of=self)

    def new(
        self,
        value: I,
        *,
        queue: str | None = None,
        id: str | None = None,  # noqa: A002 - the field's own name
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        run_at: datetime | None = None,
        delay: str | timedelta | None = None,
        concurrency_key: str | None = None,
        target: str | None = None,
        requested_by: str | None = None,
    ) -> NewTask:
        """The call as a value, checked as by `submit`, for `Rdq.submit_many`."""
        return NewTask(
            self.queue if queue is None else queue,
            self.name,
            self._encoded(value),
            id=id,
            key=key,
            headers=headers,
            content_type=JSON,
            handler_version=self.version,
            run_at=run_at,
            delay=delay,
            concurrency_key=concurrency_key,
            target=target,
            requested_by=requested_by,
        )

    def result(self, rdq: Tasks, task_id: str) -> TaskResult[O]:
        """How far the task has got, and its output.

        Raises TaskNotFound when there is none or it is another definition's, and OutputInvalid when
        the stored output doesn't fit this definition any more.
        """
        task = rdq.get(task_id)
        if task.handler_ref != self.name:
            raise TaskNotFound(
                f"task {task.id} is not of the typed task {self.name!r}", task_id=task.id
            )
        return result_of(task, self._output.decode)

    def run(self, value: I, ctx: TaskContext | None = None) -> O:
        """Call the plain function, here and now: for tests. Without a context it gets one that
        nothing cancels.

        An async function is run to its end; inside a running event loop await `function` instead.
        """
        context = trial_context(self.name, self.queue, self._encoded(value)) if ctx is None else ctx
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
        """What the engine calls."""
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
        """What the handler returned; None is an output as well."""
        try:
            return Result(content=self._output.encode(value), content_type=JSON)
        except ValueError as problem:
            raise OutputInvalid(f"result: {problem}") from None


class Define(Protocol):
    """Makes the definition of a function."""

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
    """Define a typed task of the decorated function of (input) or (input, ctx), plain or async.

    Input and output are strict JSON of their annotations. Unknown fields are refused at submit and
    when a task is run, so adding a field to the input means deploying the consumers first;
    `strict_input=False` lets consumers pass over fields that they don't know. Submits pin
    `version`.

    The keys that `retry` gives, `timeout` of an attempt and `retention` of the ended task, dead ones
    included, apply on hosts that have registered the definition, unless the queue's configuration
    sets the same key. Raises ConfigInvalid for a bad or reserved name, a
    function that can't be called with the input, and options out of range.
    """
    path = f"tasks.{name}"
    _check_names(path, name=name, queue=queue, version=version)
    options = layer_of(path, retry=retry, timeout=timeout, retention=retention)
    effective(queue, {}, {}, None, options)

    def define(function: Callable[..., Any]) -> TaskDefinition[Any, Any]:
        signature = read_signature(path, function)
        if signature.annotation is None:
            raise ConfigInvalid(
                f"{path}.input", "has no annotation: a typed task says what it takes"
            )
        return TaskDefinition(
            _MADE_BY_TASK,
            name=name,
            queue=queue,
            version=version,
            signature=signature,
            options=options,
            strict_input=strict_input,
            outcome=outcome,
        )

    return define


def made_by_task(value: object) -> TaskDefinition[Any, Any]:
    """The value, when it is a definition. ConfigInvalid for anything else, whatever it looks like."""
    if type(value) is not TaskDefinition or getattr(value, "_made", None) is not _MADE_BY_TASK:
        raise _not_ours(value)
    return value


def _check_names(path: str, *, name: object, queue: object, version: object) -> None:
    try:
        limits.check_name("name", name)
        limits.check_name("queue", queue)
        if version is not None:
            limits.check_text("version", version)
    except InputInvalid as refusal:
        raise ConfigInvalid(f"{path}.{refusal.field}", refusal.problem) from None


def _not_ours(value: object) -> ConfigInvalid:
    return ConfigInvalid(
        "tasks", f"a {type(value).__name__} is no definition: only what rdq_core.task makes is one"
    )
