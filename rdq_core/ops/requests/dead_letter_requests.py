"""Requests about dead tasks."""

import base64
import binascii
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from rdq_core.domain.ids import check_id
from rdq_core.domain.lifecycle import Edit
from rdq_core.domain.units import parse_duration
from rdq_core.errors import InputInvalid
from rdq_core.ops.dead_letter_edits import DeadLetterEditor
from rdq_core.ops.dead_letters import DeadLetters
from rdq_core.ops.mutation import Mutation
from rdq_core.ops.orders import Canary, Operation, Order, rate_of
from rdq_core.ops.requests.context import Document, Request, RequestContext, operation
from rdq_core.ops.selection import DeadLetterFilter, Selection
from rdq_core.ops.views import (
    changed_view,
    entry_view,
    group_view,
    listed,
    mutation_view,
    task_view,
)


@operation
class ListDead(DeadLetterFilter, Request):
    """A page of a queue's DLQ."""

    op: ClassVar[str] = "dlq.list"
    queue: str
    page_size: int = 50
    cursor: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The entries, and the cursor of the next page."""
        page = DeadLetters(context.parts).entries(
            self.queue, self, page_size=self.page_size, cursor=self.cursor
        )
        return listed(map(entry_view, page.items), page.next_cursor)


@operation
class ShowDead(Request):
    """A dead task with its whole history."""

    op: ClassVar[str] = "dlq.show"
    id: str
    show_payload: bool = False

    def answer(self, context: RequestContext) -> Document:
        """The task."""
        task = DeadLetters(context.parts).show(check_id(self.id))
        return task_view(task, show_payload=self.show_payload)


@operation
class GroupDead(Request):
    """The dead tasks by what they died of, one group a bug."""

    op: ClassVar[str] = "dlq.groups"
    queue: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The groups, the largest first."""
        return listed(map(group_view, DeadLetters(context.parts).groups(self.queue)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChangeSelected(Selection, Request):
    """A request that changes the selected entries.

    A caller that has seen a dry run can say how many are `expected`, which spares counting them
    again.
    """

    queue: str
    rate: str | None = None
    dry_run: bool = False
    reason: str | None = None
    expected: Annotated[int, Field(ge=0)] | None = None

    def by_job(self, context: RequestContext, order: Order) -> Document:
        """Start a job for the order; of a dry run, the numbers that it would touch."""
        editor = DeadLetterEditor(context.parts, context.auditor())
        if self.dry_run:
            seen = editor.preview(self.queue, order)
            would = Mutation(selected=seen.selected, skipped=seen.refused, dry_run=True)
            return {**mutation_view(would), "preview": seen.as_dict()}
        expected = (
            editor.preview(self.queue, order).selected if self.expected is None else self.expected
        )
        job = editor.start(self.queue, order, reason=self.reason, expected=expected)
        return mutation_view(Mutation(selected=expected, job_id=job.id))

    def pace(self, context: RequestContext) -> str:
        """The rate that was asked for, or else the queue's own."""
        return self.rate or rate_of(context.parts.queues.settings(self.queue))


@operation
class Redrive(_ChangeSelected):
    """Send dead tasks back: named ones at once, filters, groups and all by a job."""

    op: ClassVar[str] = "dlq.redrive"
    canary: int | None = None
    canary_wait: str | None = None
    min_success: float | None = None
    force: bool = False
    unpin: bool = False
    set_version: str | None = None
    set_handler: str | None = None
    payload_base64: str | None = None
    payload_content_type: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """What was sent back; where a job does it, the job's id."""
        canary = self._canary()
        if not self.ids:
            order = Order(
                operation=Operation.REDRIVE,
                selection=self,
                edit=self._edit(),
                force=self.force,
                rate=self.pace(context),
                canary=canary,
            )
            return self.by_job(context, order)
        if canary or self.rate:
            raise InputInvalid(
                "ids", "are sent back at once: a rate or a canary is for filters, a group or all"
            )
        done = DeadLetterEditor(context.parts, context.auditor()).redrive(
            self.queue,
            self.ids,
            self._edit(),
            force=self.force,
            reason=self.reason,
            dry_run=self.dry_run,
        )
        return changed_view(done)

    def _edit(self) -> Edit:
        return Edit(
            handler_ref=self.set_handler,
            handler_version=self.set_version,
            unpin=self.unpin,
            payload=None if self.payload_base64 is None else _decoded(self.payload_base64),
            payload_content_type=self.payload_content_type,
        )

    def _canary(self) -> Canary | None:
        if self.canary is None:
            if self.canary_wait is not None or self.min_success is not None:
                raise InputInvalid("canary", "is missing: give the number of tasks that go first")
            return None
        usual = Canary(first=self.canary)
        wait = usual.wait if self.canary_wait is None else _span("canary_wait", self.canary_wait)
        least = usual.min_success if self.min_success is None else self.min_success
        return Canary(first=self.canary, wait=wait, min_success=least)


@operation
class Purge(_ChangeSelected):
    """Remove dead tasks for good: named ones at once, filters, groups and all by a job."""

    op: ClassVar[str] = "dlq.purge"

    def answer(self, context: RequestContext) -> Document:
        """What was removed; where a job does it, the job's id."""
        if not self.ids:
            order = Order(operation=Operation.PURGE, selection=self, rate=self.pace(context))
            return self.by_job(context, order)
        if self.rate:
            raise InputInvalid("ids", "are removed at once: a rate is for filters, a group or all")
        editor = DeadLetterEditor(context.parts, context.auditor())
        return changed_view(
            editor.purge(self.queue, self.ids, reason=self.reason, dry_run=self.dry_run)
        )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InputInvalid("payload_base64", "is not base64") from None


def _span(field: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise InputInvalid(field, str(problem)) from None
