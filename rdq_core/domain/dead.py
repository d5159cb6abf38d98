"""The DLQ entry of a dead task: what lists and groups show without reading the task."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rdq_core.domain.attempt import Code
from rdq_core.domain.task import Task
from rdq_core.domain.text import truncate

MAX_ENTRY_TYPE_BYTES: Final = 128
MAX_ENTRY_MESSAGE_BYTES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEntry:
    """A task in the DLQ, as lists show it. `message` is cut to 200 bytes; the task has the whole
    history.

    `dead_at` identifies this death: a redrive or purge of another one changes nothing. `attempts`
    counts the whole history.
    """

    task_id: str
    queue: str
    handler_ref: str
    handler_version: str | None
    dead_at: datetime
    created_at: datetime
    code: str
    type: str | None
    message: str | None
    fingerprint: str
    attempts: int
    redrive_count: int
    payload_size: int


def entry_of(task: Task, *, attempts: int, payload_size: int, fingerprint: str) -> DeadEntry:
    """The entry of a dead task. The sizes of its history and payload are passed in, because a short
    read has neither.
    """
    failure = task.failure
    return DeadEntry(
        task_id=task.id,
        queue=task.queue,
        handler_ref=task.handler_ref,
        handler_version=task.handler_version,
        dead_at=task.completed_at or task.created_at,
        created_at=task.created_at,
        code=failure.code if failure else Code.FAILED,
        type=_cut(failure.type if failure else None, MAX_ENTRY_TYPE_BYTES),
        message=_cut(failure.message if failure else None, MAX_ENTRY_MESSAGE_BYTES),
        fingerprint=fingerprint,
        attempts=attempts,
        redrive_count=task.redrive_count,
        payload_size=payload_size,
    )


def _cut(text: str | None, limit: int) -> str | None:
    return None if text is None else truncate(text, limit)
