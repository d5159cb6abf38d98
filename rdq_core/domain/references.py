"""References, by which tasks are forgotten: what a task is about (`target`), who asked for it
(`requested_by`).

    submit   write the reference ─ write the row ─ read the tombstone
    forget   write the tombstone ─ read the references ─ remove the rows

The invariant: each writes before it reads, so of a submit and a forget that overlap at least one
sees the other, and no forgotten task stays.
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
"""How far synchronised clocks may be apart. A task submitted within this time after a forget is
forgotten too.
"""

TOMBSTONE_LIFE: Final = timedelta(days=400)
"""How long a forget is remembered: longer than any task can wait for its first claim."""


class ReferenceKind(StrEnum):
    """Which field of a task a reference is."""

    TARGET = "target"
    REQUESTED_BY = "requested_by"


@dataclass(frozen=True, slots=True)
class Reference:
    """One target or requester. It may be a person's name or address, so no message or key contains
    it.
    """

    kind: ReferenceKind
    value: str = field(repr=False)

    @property
    def digest(self) -> str:
        """What stores keep instead of the value, so that a tombstone doesn't name who was
        forgotten.
        """
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
    """Whether a forget at `forgotten_at` (None: there was none) includes a task of `created_at`."""
    return forgotten_at is not None and created_at - GRACE <= forgotten_at


def forgotten(task_id: str) -> TaskConflict:
    """The error of a submit whose target or requester was just forgotten. Nothing is stored."""
    return TaskConflict(
        f"task {task_id} has a target or requester that was forgotten while it was submitted,"
        " so it isn't stored",
        task_id=task_id,
        hint=f"if it is new business, submit it again {GRACE.seconds} seconds after the forget",
    )
