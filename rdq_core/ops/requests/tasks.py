"""Requests about tasks, whatever state they are in."""

from typing import ClassVar, Final, Literal

from rdq_core.domain import limits
from rdq_core.domain.ids import check_id, derive_id
from rdq_core.domain.task import Status
from rdq_core.errors import InputInvalid
from rdq_core.ops.requests.dead_letters import told
from rdq_core.ops.requests.desks import Desks, Document, Request, Who
from rdq_core.ops.tasks import TaskDesk, TaskFilter
from rdq_core.ops.views import task_view

_ASK: Final = "rdq task get ID, or by its business key: rdq task get -q QUEUE --key KEY"
Live = Literal["PENDING", "IN_FLIGHT"]


class GetTask(Request):
    """A task, by its id, or by its queue and business key."""

    op: ClassVar[str] = "task.get"
    id: str | None = None
    queue: str | None = None
    key: str | None = None
    show_payload: bool = False

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - everybody may look
        """The task with its history."""
        return task_view(desks.task_desk().get(self._wanted()), show_payload=self.show_payload)

    def _wanted(self) -> str:
        by_key = self.queue is not None and self.key is not None
        if (self.id is not None) == by_key or (self.id is not None and (self.key or self.queue)):
            raise InputInvalid("id", "give the task's id, or queue and key", hint=_ASK)
        if self.queue is not None and self.key is not None:
            key = limits.check_text("key", self.key, most=limits.MAX_HEADER_BYTES)
            return derive_id(limits.check_name("queue", self.queue), key)
        try:
            return check_id(self.id)
        except InputInvalid as refused:
            refused.hint = _ASK
            raise


class FindTask(Request):
    """The task that a shortened id means, of those that wait, run or are dead."""

    op: ClassVar[str] = "task.find"
    short: str
    queue: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - the same
        """Its whole id."""
        return {"id": desks.short_ids().find(self.short, self.queue)}


class ListTasks(Request):
    """A page of a queue's waiting and running tasks."""

    op: ClassVar[str] = "task.list"
    queue: str
    status: Live | None = None
    handler: str | None = None
    page_size: int = 50
    cursor: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - the same
        """The tasks, by shard and due time, and the cursor of the next page."""
        chosen = TaskFilter(status=self.status and Status(self.status), handler=self.handler)
        return desks.task_desk().live(
            self.queue, chosen, page_size=self.page_size, cursor=self.cursor
        )


class CancelTasks(Request):
    """Stop tasks for good: named ones, or those of a queue that meet conditions, so many at a time."""

    op: ClassVar[str] = "task.cancel"
    ids: list[str] | None = None
    queue: str | None = None
    status: Live | None = None
    handler: str | None = None
    all: bool = False
    dry_run: bool = False
    reason: str | None = None
    cursor: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:
        """What was stopped. Of a queue `next_cursor` says where to go on, None at the end."""
        if self.ids:
            if self.queue or self.status or self.handler or self.all:
                raise InputInvalid("ids", "exclude a queue and conditions")
            return told(
                self._desk(desks, who).cancel(self.ids, dry_run=self.dry_run, reason=self.reason)
            )
        if self.queue is None:
            raise InputInvalid("id", "is missing: give at least one, or a queue with conditions")
        if bool(self.status or self.handler) == self.all:
            raise InputInvalid(
                "selection",
                "give exactly one of ids, conditions, or all",
                hint="conditions are status and handler",
            )
        chosen = TaskFilter(status=self.status and Status(self.status), handler=self.handler)
        done, more = self._desk(desks, who).cancel_matching(
            self.queue, chosen, dry_run=self.dry_run, reason=self.reason, cursor=self.cursor
        )
        return {**told(done), "next_cursor": more}

    def _desk(self, desks: Desks, who: Who) -> TaskDesk:
        return desks.task_desk(None if self.dry_run else who())


REQUESTS: Final = (GetTask, FindTask, ListTasks, CancelTasks)
