"""`Rdq`: submitting, reading and stopping tasks, for programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rdq_core.domain import ids
from rdq_core.domain.task import Task
from rdq_core.domain.units import parse_duration
from rdq_core.engine.submit import Draft
from rdq_core.errors import InputInvalid, TaskNotFound
from rdq_core.handlers.encoding import encode
from rdq_core.runtime.log import Quiet
from rdq_core.runtime.wiring import Parts, connect

if TYPE_CHECKING:
    from rdq_core.stores.dynamodb.schema import Tables


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a submit answers: the task's id and queue, and whether this submit stored it."""

    id: str
    queue: str
    created: bool


class Rdq:
    """The way in for programs. Safe between threads; make one a process and keep it.

    `client` is a low-level DynamoDB client of boto3 and `tables` the four names; what is left out comes from the
    environment. `parts` replaces both, for tests and for hosts that are put together differently.
    """

    def __init__(self, *, client: Any = None, tables: "Tables | None" = None, parts: Parts | None = None) -> None:
        self._parts = parts or connect(client, tables, events=Quiet())
        self._submitter = self._parts.submitter()

    @classmethod
    def from_env(cls) -> "Rdq":
        """On the environment's AWS and the four `RDQ_*_TABLE` variables. Unavailable names what is missing."""
        return cls()

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

        `payload` is bytes as they stand, text as UTF-8, or a model, dataclass, dict, list, number, bool or None as
        compact JSON. `key` is a business key: the same key in the same queue submits once, and finds the task again.
        `run_at` is an aware datetime, `delay` a duration such as "30s". Once this returns the task is durable.

        Raises InputInvalid naming the field, QueueNotFound, TaskConflict when the id is in another queue, and
        StoreFailed; in each case but the last nothing was stored. After StoreFailed repeat the call with the same
        `id` or `key`.
        """
        content, encoded_type = _encoded(payload)
        submission = self._submitter.submit(
            Draft(
                queue=queue,
                handler_ref=handler_ref,
                payload=content,
                content_type=encoded_type if content_type is None else content_type,
                id=id,
                key=key,
                headers=headers or {},
                handler_version=handler_version,
                run_at=self._run_at(run_at, delay),
                concurrency_key=concurrency_key,
                target=target,
                requested_by=requested_by,
            )
        )
        return Receipt(submission.task.id, submission.task.queue, submission.created)

    def get(self, task_id: str | None = None, *, queue: str | None = None, key: str | None = None) -> Task:
        """The whole task with its history, by id, or by queue and business key. Raises TaskNotFound."""
        if (task_id is None) == (key is None) or (key is not None and queue is None):
            raise InputInvalid("id", "give an id, or a queue and a key")
        wanted = ids.derive_id(str(queue), key) if key is not None else ids.check_id(task_id)
        task = self._parts.store.get(wanted)
        if task is None:
            raise TaskNotFound(f"no task {wanted}", task_id=wanted)
        return task

    def _run_at(self, run_at: datetime | None, delay: str | timedelta | None) -> datetime | None:
        if delay is None:
            return run_at
        if run_at is not None:
            raise InputInvalid("delay", "excludes run_at: give one of them")
        try:
            return self._parts.clock.now() + parse_duration(delay)
        except ValueError as problem:
            raise InputInvalid("delay", str(problem)) from None


def _encoded(payload: object) -> tuple[bytes, str]:
    try:
        return encode(payload)
    except ValueError as problem:
        raise InputInvalid("payload", str(problem)) from None
