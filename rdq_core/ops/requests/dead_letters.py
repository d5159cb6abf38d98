"""Requests about dead tasks."""

import base64
import binascii
from datetime import timedelta
from typing import ClassVar, Final

from pydantic import Field

from rdq_core.domain.ids import check_id
from rdq_core.domain.lifecycle import Edit
from rdq_core.domain.times import parse_time
from rdq_core.domain.units import parse_duration
from rdq_core.errors import InputInvalid
from rdq_core.ops.mutation import Mutation
from rdq_core.ops.orders import Canary, Operation, Order, rate_of
from rdq_core.ops.requests.desks import Desks, Document, Request, Who
from rdq_core.ops.selection import Filters, Selection
from rdq_core.ops.views import entry_view, group_view, listed, mutation_view, task_view


class Filtered(Request):
    """A request about the entries that meet conditions. Times are RFC 3339."""

    queue: str
    type: str | None = None
    handler: str | None = None
    since: str | None = None
    until: str | None = None
    group: str | None = None

    @property
    def filters(self) -> Filters:
        """The conditions. Raises InputInvalid for a time that is none."""
        return Filters(
            type=self.type,
            handler=self.handler,
            since=None if self.since is None else parse_time(self.since, "since"),
            until=None if self.until is None else parse_time(self.until, "until"),
            group=self.group,
        )


class ListDead(Filtered):
    """A page of a queue's DLQ."""

    op: ClassVar[str] = "dlq.list"
    page_size: int = 50
    cursor: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - everybody may look
        """The entries, and the cursor of the next page."""
        page = desks.dead_letters().entries(
            self.queue, self.filters, page_size=self.page_size, cursor=self.cursor
        )
        return listed(map(entry_view, page.items), page.next_cursor)


class ShowDead(Request):
    """A dead task with its whole history."""

    op: ClassVar[str] = "dlq.show"
    id: str
    show_payload: bool = False

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - the same
        """The task."""
        return task_view(
            desks.dead_letters().show(check_id(self.id)), show_payload=self.show_payload
        )


class GroupDead(Request):
    """What the dead tasks died of, one group a bug."""

    op: ClassVar[str] = "dlq.groups"
    queue: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - the same
        """The groups, the largest first."""
        return listed(map(group_view, desks.dead_letters().groups(self.queue)))


class Selecting(Filtered):
    """A request that changes the entries which are selected in exactly one way.

    Whoever has seen a dry run can say how many are `expected`: they are then not counted again.
    """

    ids: list[str] | None = None
    all: bool = False
    rate: str | None = None
    dry_run: bool = False
    reason: str | None = None
    expected: int | None = Field(default=None, ge=0)

    @property
    def selection(self) -> Selection:
        """What is meant. Raises InputInvalid unless it is said in exactly one way."""
        return Selection(ids=tuple(self.ids or ()), filters=self.filters, everything=self.all)

    def by_job(self, desks: Desks, who: Who, order: Order) -> Document:
        """Leave it to a job; of a dry run, what it would touch."""
        editor = desks.dead_letter_editor(who())
        if self.dry_run:
            seen = editor.preview(self.queue, order)
            would = Mutation(selected=seen.selected, skipped=seen.refused, dry_run=True)
            return {**mutation_view(would), "preview": seen.as_dict()}
        expected = (
            editor.preview(self.queue, order).selected if self.expected is None else self.expected
        )
        job = editor.start(self.queue, order, reason=self.reason, expected=expected)
        return mutation_view(Mutation(selected=expected, job_id=job.id))

    def pace(self, desks: Desks) -> str:
        """What was asked for, or what the queue allows."""
        return self.rate or rate_of(desks.queues.settings(self.queue))


class Redrive(Selecting):
    """Send dead tasks back: named ones at once, more of them by a job."""

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

    def answer(self, desks: Desks, who: Who) -> Document:
        """What was changed; of many the job that changes it."""
        selection, canary = self.selection, self._canary()
        if not selection.ids:
            order = Order(
                operation=Operation.REDRIVE,
                selection=selection,
                edit=self._edit(),
                force=self.force,
                rate=self.pace(desks),
                canary=canary,
            )
            return self.by_job(desks, who, order)
        if canary or self.rate:
            raise InputInvalid(
                "ids", "are sent back at once: a rate or a canary is for filters, a group or all"
            )
        done = desks.dead_letter_editor(who()).redrive(
            self.queue,
            selection.ids,
            self._edit(),
            force=self.force,
            reason=self.reason,
            dry_run=self.dry_run,
        )
        return told(done)

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
                raise InputInvalid("canary", "is missing: say how many go first")
            return None
        usual = Canary(first=self.canary)
        wait = usual.wait if self.canary_wait is None else _span("canary_wait", self.canary_wait)
        least = usual.min_success if self.min_success is None else self.min_success
        return Canary(first=self.canary, wait=wait, min_success=least)


class Purge(Selecting):
    """Remove dead tasks for good: named ones at once, more of them by a job."""

    op: ClassVar[str] = "dlq.purge"

    def answer(self, desks: Desks, who: Who) -> Document:
        """What was removed; of many the job that removes it."""
        selection = self.selection
        if not selection.ids:
            order = Order(operation=Operation.PURGE, selection=selection, rate=self.pace(desks))
            return self.by_job(desks, who, order)
        if self.rate:
            raise InputInvalid("ids", "are removed at once: a rate is for filters, a group or all")
        editor = desks.dead_letter_editor(who())
        return told(
            editor.purge(self.queue, selection.ids, reason=self.reason, dry_run=self.dry_run)
        )


REQUESTS: Final = (ListDead, ShowDead, GroupDead, Redrive, Purge)


def told(done: Mutation) -> Document:
    """What was changed, with the first reasons of what was not."""
    refusals = (
        {"refusals": [refusal.as_dict() for refusal in done.refusals]} if done.refusals else {}
    )
    return mutation_view(done) | refusals


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
