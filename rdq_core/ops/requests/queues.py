"""Requests about queues: how they are, and what is configured."""

from datetime import timedelta
from typing import Any, ClassVar, Final

from rdq_core.config.document import Document as File
from rdq_core.config.document import document_of, parse_document
from rdq_core.domain.units import parse_duration
from rdq_core.errors import InputInvalid
from rdq_core.ops.queue_edits import FOR_EVER
from rdq_core.ops.queues import checked
from rdq_core.ops.requests.desks import Desks, Document, Request, Who
from rdq_core.ops.views import listed


class Status(Request):
    """How one queue is, or all."""

    op: ClassVar[str] = "status"
    queue: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - everybody may look
        """One line a queue."""
        return desks.queue_desk().status(self.queue)


class ListQueues(Request):
    """Every queue."""

    op: ClassVar[str] = "queue.list"

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - the same
        """What tells them apart."""
        return desks.queue_desk().list()


class OneQueue(Request):
    """A request about one queue."""

    queue: str


class GetQueue(OneQueue):
    """A queue's layers and what is in force."""

    op: ClassVar[str] = "queue.get"

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - the same
        """The layers."""
        return desks.queue_desk().get(self.queue)


class QueueStats(OneQueue):
    """How full a queue is."""

    op: ClassVar[str] = "queue.stats"

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - the same
        """The numbers."""
        return desks.queue_desk().stats(self.queue)


class QueueLadder(OneQueue):
    """When each attempt comes."""

    op: ClassVar[str] = "queue.ladder"

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - the same
        """The rungs."""
        return desks.queue_desk().ladder(self.queue)


class WithFile(Request):
    """A request that brings a configuration file: its text, or the same structure as JSON."""

    text: str | None = None
    config: dict[str, Any] | None = None

    def file(self) -> File:
        """The file. Raises ConfigInvalid naming what is wrong in it."""
        if (self.text is None) == (self.config is None):
            raise InputInvalid("config", "give either the file's text or its structure as config")
        return checked(document_of(self.config) if self.text is None else parse_document(self.text))


class CheckQueues(WithFile):
    """Whether a file is valid."""

    op: ClassVar[str] = "queue.check"

    # nothing is even looked at
    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002
        """Its queues."""
        return listed({"queue": queue, "result": "valid"} for queue in self.file().queues)


class DiffQueues(WithFile):
    """How a file differs from what is declared."""

    op: ClassVar[str] = "queue.diff"

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - everybody may look
        """The differences, queue by queue."""
        return listed(each.as_dict() for each in desks.queue_desk().diff(self.file()))


class ApplyQueues(WithFile):
    """Declare the queues of a file."""

    op: ClassVar[str] = "queue.apply"

    def answer(self, desks: Desks, who: Who) -> Document:
        """What became of each queue."""
        return listed(each.as_dict() for each in desks.editor(who()).apply(self.file()))


class SetQueue(OneQueue):
    """Put settings on top of what is declared, or take them all away."""

    op: ClassVar[str] = "queue.set"
    set: list[str] | None = None
    clear: bool = False
    lasts: str | None = None
    reason: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:
        """The override, and what has changed."""
        editor = desks.editor(who())
        if self.clear:
            return editor.clear(self.queue, reason=self.reason)
        lasts = (
            None if self.lasts is None else FOR_EVER if self.lasts == "never" else _span(self.lasts)
        )
        return editor.set(self.queue, self.set or (), reason=self.reason or "", lasts=lasts)


class PauseQueue(OneQueue):
    """Start nothing more."""

    op: ClassVar[str] = "queue.pause"
    reason: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:
        """Whether it was paused already."""
        return desks.editor(who()).pause(self.queue, reason=self.reason)


class ResumeQueue(OneQueue):
    """Let a paused queue go on."""

    op: ClassVar[str] = "queue.resume"

    def answer(self, desks: Desks, who: Who) -> Document:
        """Whether it was paused."""
        return desks.editor(who()).resume(self.queue)


class DeleteQueue(OneQueue):
    """Delete a queue, in two steps."""

    op: ClassVar[str] = "queue.delete"
    reason: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:
        """How far the deletion is."""
        return desks.editor(who()).delete(self.queue, reason=self.reason)


REQUESTS: Final = (
    Status,
    ListQueues,
    GetQueue,
    QueueStats,
    QueueLadder,
    CheckQueues,
    DiffQueues,
    ApplyQueues,
    SetQueue,
    PauseQueue,
    ResumeQueue,
    DeleteQueue,
)


def _span(lasts: str) -> timedelta:
    try:
        return parse_duration(lasts)
    except ValueError as problem:
        raise InputInvalid("for", f"{problem}, or never") from None
