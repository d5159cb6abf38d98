"""Requests about tasks in any status."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from rdq_core.domain import limits
from rdq_core.domain.ids import check_id, derive_id
from rdq_core.domain.references import reference_to
from rdq_core.errors import InputInvalid
from rdq_core.ops.mutation import Mutation
from rdq_core.ops.requests.context import Document, Request, RequestContext, operation
from rdq_core.ops.short_ids import ShortIds
from rdq_core.ops.task_edits import AT_ONCE, TaskEditor
from rdq_core.ops.tasks import TaskFilter, TaskReader, candidate_view
from rdq_core.ops.views import changed_view, listed, mutation_view, task_view

_HINT: Final = "rdq task get ID, or by its business key: rdq task get -q QUEUE --key KEY"


@operation
class GetTask(Request):
    """A task, by its id, or by its queue and business key."""

    op: ClassVar[str] = "task.get"
    id: str | None = None
    queue: str | None = None
    key: str | None = None
    show_payload: bool = False

    def answer(self, context: RequestContext) -> Document:
        """The task with its history."""
        task = TaskReader(context.parts).get(self._task_id())
        return task_view(task, show_payload=self.show_payload)

    def _task_id(self) -> str:
        by_key = self.queue is not None and self.key is not None
        if (self.id is not None) == by_key or (self.id is not None and (self.key or self.queue)):
            raise InputInvalid("id", "give the task's id, or queue and key", hint=_HINT)
        if self.queue is not None and self.key is not None:
            key = limits.check_text("key", self.key, most=limits.MAX_HEADER_BYTES)
            return derive_id(limits.check_name("queue", self.queue), key)
        try:
            return check_id(self.id)
        except InputInvalid as refused:
            refused.hint = _HINT
            raise


@operation
class FindTask(Request):
    """The task that a shortened id means, among those that wait, run or are dead."""

    op: ClassVar[str] = "task.find"
    short: str
    queue: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The whole id."""
        return {"id": ShortIds(context.parts).find(self.short, self.queue)}


@operation
class ListTasks(TaskFilter, Request):
    """A page of a queue's waiting and running tasks."""

    op: ClassVar[str] = "task.list"
    queue: str
    page_size: int = 50
    cursor: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The tasks, by shard and due time, and the cursor of the next page."""
        page = TaskReader(context.parts).live(
            self.queue, self, page_size=self.page_size, cursor=self.cursor
        )
        return listed(map(candidate_view, page.items), page.next_cursor)


@operation
class CancelTasks(TaskFilter, Request):
    """Cancel tasks: named ones, or those of a queue that meet conditions, a page at a time."""

    op: ClassVar[str] = "task.cancel"
    ids: list[str] | None = None
    queue: str | None = None
    all: bool = False
    dry_run: bool = False
    reason: str | None = None
    cursor: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """What was cancelled. Of a queue, `next_cursor` is where to go on, None at the end."""
        if self.ids:
            if self.queue or self.status or self.handler or self.all:
                raise InputInvalid("ids", "exclude a queue and conditions")
            return changed_view(self._named(context, self.ids))
        if self.queue is None:
            raise InputInvalid("id", "is missing: give at least one, or a queue with conditions")
        if bool(self.status or self.handler) == self.all:
            raise InputInvalid(
                "selection",
                "give exactly one of ids, conditions, or all",
                hint="conditions are status and handler",
            )
        done, more = self._matching(context, self.queue)
        return {**changed_view(done), "next_cursor": more}

    # A dry run leaves no audit record, so it asks for no auditor and needs no principal.

    def _named(self, context: RequestContext, ids: Sequence[str]) -> Mutation:
        if self.dry_run:
            _, tally = TaskReader(context.parts).cancellable(ids)
            return replace(tally, dry_run=True)
        return TaskEditor(context.parts, context.auditor()).cancel(ids, reason=self.reason)

    def _matching(self, context: RequestContext, queue: str) -> tuple[Mutation, str | None]:
        if self.dry_run:
            reader = TaskReader(context.parts)
            page = reader.live(queue, self, page_size=AT_ONCE, cursor=self.cursor)
            return Mutation(selected=len(page.items), dry_run=True), page.next_cursor
        return TaskEditor(context.parts, context.auditor()).cancel_matching(
            queue, self, reason=self.reason, cursor=self.cursor
        )


@operation
class ForgetTasks(Request):
    """Remove every task of a target or requester, in any status and queue, with all it has."""

    op: ClassVar[str] = "task.forget"
    target: str | None = None
    requested_by: str | None = None
    reason: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The number of tasks that were removed."""
        reference = reference_to(target=self.target, requested_by=self.requested_by)
        editor = TaskEditor(context.parts, context.auditor())
        return mutation_view(editor.forget(reference, reason=self.reason))
