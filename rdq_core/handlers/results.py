"""A task's status with its output as a value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.errors import OutputInvalid
from rdq_core.handlers.decoding import read_json, read_text
from rdq_core.handlers.encoding import JSON, TEXT

O_co = TypeVar("O_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(Generic[O_co]):
    """A task's status and output.

    `output` is meaningful only if `has_output` is true: None may be the output itself. `attempts`
    is the whole history, oldest first. `failure` is the last failure, None after a success.
    `completed_at` is None until the task has ended.
    """

    id: str
    status: Status
    output: O_co | None
    has_output: bool
    attempts: Sequence[Attempt]
    failure: Failure | None
    completed_at: datetime | None


def result_of(task: Task, decode: Callable[[bytes], Any]) -> TaskResult[Any]:
    """The result of a task.

    Raises OutputInvalid when the stored output doesn't decode; nothing is changed.
    """
    has_output = task.status is Status.SUCCEEDED and task.result is not None
    try:
        output = decode(task.result) if has_output and task.result is not None else None
    except ValueError as problem:
        raise OutputInvalid(f"the output of task {task.id} {problem}", task_id=task.id) from None
    return TaskResult(
        id=task.id,
        status=task.status,
        output=output,
        has_output=has_output,
        attempts=task.attempts,
        failure=task.failure,
        completed_at=task.completed_at,
    )


def plain_result(task: Task) -> TaskResult[Any]:
    """The result with its output decoded by content type: JSON data, text, or else bytes."""
    kind = (task.result_content_type or "").partition(";")[0].strip()
    if kind == JSON:
        return result_of(task, read_json)
    if kind == TEXT.partition(";")[0]:
        return result_of(task, read_text)
    return result_of(task, bytes)
