"""What requests are answered with, and by whom they are made."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict

from rdq_core.engine.auditor import Auditor, Principal
from rdq_core.engine.ports import Clock, QueueStore
from rdq_core.ops.audit import AuditDesk
from rdq_core.ops.dead_letter_edits import DeadLetterEditor
from rdq_core.ops.dead_letters import DeadLetters
from rdq_core.ops.jobs import Jobs
from rdq_core.ops.queue_edits import QueueEditor
from rdq_core.ops.queues import QueueDesk
from rdq_core.ops.short_ids import ShortIds
from rdq_core.ops.tasks import TaskDesk

Document: TypeAlias = dict[str, Any]
Who: TypeAlias = Callable[[], Principal]
"""Who asks. It is called only for requests that go on record, because finding out may take a
request itself.
"""


class Desks(Protocol):
    """The parts of an rdq that answer operators."""

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def queues(self) -> QueueStore:
        """The queues' configuration."""
        ...

    def dead_letters(self) -> DeadLetters:
        """What looks into the DLQ."""
        ...

    def dead_letter_editor(self, principal: Principal) -> DeadLetterEditor:
        """What changes dead tasks."""
        ...

    def task_desk(self, principal: Principal | None = None) -> TaskDesk:
        """What looks at tasks, and cancels them for somebody."""
        ...

    def short_ids(self) -> ShortIds:
        """What finds the task that a shortened id means."""
        ...

    def job_desk(self) -> Jobs:
        """What starts, lists and ends bulk operations."""
        ...

    def queue_desk(self) -> QueueDesk:
        """What looks at queues."""
        ...

    def editor(self, principal: Principal) -> QueueEditor:
        """What changes queues."""
        ...

    def audit_desk(self) -> AuditDesk:
        """What reads the audit log."""
        ...

    def auditor(self, principal: Principal) -> Auditor:
        """What records a principal's operations."""
        ...


class Request(BaseModel):
    """One operator request. What it doesn't know it refuses."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    op: ClassVar[str]

    def answer(self, desks: Desks, who: Who) -> Document:
        """Do what is asked."""
        raise NotImplementedError
