"""References: the order a task is about (`target`) and who asked for it (`requested_by`), by which
tasks are forgotten.

    submit   reference ─ row ─ read the tombstone        whoever comes second sees the first:
    forget   tombstone ─ read the references ─ rows      the reference before the row, the tombstone before the reading

The invariant: of a submit and a forget that meet, at least one knows of the other, so no forgotten
task stays.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from rdq_core.domain.limits import check_text
from rdq_core.domain.task import Task
from rdq_core.errors import InputInvalid, TaskConflict

GRACE: Final = timedelta(seconds=2)
"""How far clocks that are kept right may be apart: what was submitted so shortly after a forget is
forgotten too.
"""

TOMBSTONE_LIFE: Final = timedelta(days=400)
"""How long a forget is remembered: longer than any task can wait for its first claim."""


class ReferenceKind(StrEnum):
    """What a reference says of its task."""

    TARGET = "target"
    REQUESTED_BY = "requested_by"


@dataclass(frozen=True, slots=True)
class Reference:
    """One target or requester. It may be a person's name or address, so it is in no message and no
    key.
    """

    kind: ReferenceKind
    value: str = field(repr=False)

    @property
    def digest(self) -> str:
        """What stores keep in its place: after a forget nothing tells who was forgotten."""
        return hashlib.sha256(f"{self.kind}:{self.value}".encode()).hexdigest()[:32]


def reference_to(*, target: str | None, requested_by: str | None) -> Reference:
    """The one that is given. Raises InputInvalid unless exactly one is, as text within limits."""
    given = [(ReferenceKind.TARGET, target), (ReferenceKind.REQUESTED_BY, requested_by)]
    match [(kind, value) for kind, value in given if value is not None]:
        case [(kind, value)]:
            return Reference(kind, check_text(kind, value))
    raise InputInvalid("target", "give a target or a requested_by")


def references_of(task: Task) -> Iterator[Reference]:
    """The references that a task has."""
    if task.target is not None:
        yield Reference(ReferenceKind.TARGET, task.target)
    if task.requested_by is not None:
        yield Reference(ReferenceKind.REQUESTED_BY, task.requested_by)


def is_forgotten(created_at: datetime, forgotten_at: datetime | None) -> bool:
    """Whether a forget at that moment (None: there was none) means a task submitted at this one."""
    return forgotten_at is not None and created_at - GRACE <= forgotten_at


def forgotten(task_id: str) -> TaskConflict:
    """The refusal of a submit whose target or requester has just been forgotten. Nothing of it is
    stored.
    """
    return TaskConflict(
        f"task {task_id} has a target or requester that was forgotten while it was submitted, so it isn't stored",
        task_id=task_id,
        hint=f"if it is new business, submit it again {GRACE.seconds} seconds after the forget",
    )
