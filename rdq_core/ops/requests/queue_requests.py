"""Requests about queues: their state and their configuration."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from rdq_core.config.document import Document as File
from rdq_core.config.document import document_of, parse_document
from rdq_core.domain.units import parse_duration
from rdq_core.errors import InputInvalid
from rdq_core.ops.queue_edits import FOR_EVER, QueueEditor
from rdq_core.ops.queues import QueueReader, checked
from rdq_core.ops.requests.context import Document, Request, RequestContext, operation
from rdq_core.ops.views import listed


@operation
class QueueStatus(Request):
    """The state of one queue, or of all."""

    op: ClassVar[str] = "status"
    queue: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """One item a queue."""
        return QueueReader(context.parts).status(self.queue)


@operation
class ListQueues(Request):
    """Every queue."""

    op: ClassVar[str] = "queue.list"

    def answer(self, context: RequestContext) -> Document:
        """One item a queue, with its owner and main settings."""
        return QueueReader(context.parts).list()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneQueue(Request):
    """A request about one queue."""

    queue: str


@operation
class GetQueue(_OneQueue):
    """A queue's layers of configuration and its effective settings."""

    op: ClassVar[str] = "queue.get"

    def answer(self, context: RequestContext) -> Document:
        """The layers."""
        return QueueReader(context.parts).get(self.queue)


@operation
class QueueStats(_OneQueue):
    """The number of a queue's tasks that wait, run and are dead."""

    op: ClassVar[str] = "queue.stats"

    def answer(self, context: RequestContext) -> Document:
        """The numbers."""
        return QueueReader(context.parts).stats(self.queue)


@operation
class QueueLadder(_OneQueue):
    """When each attempt of a task that always fails comes."""

    op: ClassVar[str] = "queue.ladder"

    def answer(self, context: RequestContext) -> Document:
        """The attempts, and when the task dies."""
        return QueueReader(context.parts).ladder(self.queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithFile(Request):
    """A request that brings a configuration file: its text, or the same structure as JSON."""

    text: str | None = None
    config: dict[str, Any] | None = None

    def file(self) -> File:
        """The file. Raises ConfigInvalid naming what is wrong in it."""
        if (self.text is None) == (self.config is None):
            raise InputInvalid("config", "give either the file's text or its structure as config")
        return checked(document_of(self.config) if self.text is None else parse_document(self.text))


@operation
class CheckQueues(_WithFile):
    """Whether a file is valid."""

    op: ClassVar[str] = "queue.check"

    def answer(self, context: RequestContext) -> Document:  # noqa: ARG002 - it reads the file alone
        """The queues of the file."""
        return listed({"queue": queue, "result": "valid"} for queue in self.file().queues)


@operation
class DiffQueues(_WithFile):
    """How a file differs from what is declared."""

    op: ClassVar[str] = "queue.diff"

    def answer(self, context: RequestContext) -> Document:
        """The differences, queue by queue."""
        return listed(each.as_dict() for each in QueueReader(context.parts).diff(self.file()))


@operation
class ApplyQueues(_WithFile):
    """Declare the queues of a file."""

    op: ClassVar[str] = "queue.apply"

    def answer(self, context: RequestContext) -> Document:
        """The result for each queue."""
        return listed(each.as_dict() for each in _editor(context).apply(self.file()))


@operation
class SetQueue(_OneQueue):
    """Override declared settings, or clear the override."""

    op: ClassVar[str] = "queue.set"
    set: list[str] | None = None
    clear: bool = False
    lasts: str | None = None
    reason: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The override, and the settings that have changed."""
        editor = _editor(context)
        if self.clear:
            return editor.clear(self.queue, reason=self.reason)
        lasts = None if self.lasts is None else _span(self.lasts)
        return editor.set(self.queue, self.set or (), reason=self.reason or "", lasts=lasts)


@operation
class PauseQueue(_OneQueue):
    """Stop claims of a queue's tasks, until it is resumed."""

    op: ClassVar[str] = "queue.pause"
    reason: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The pause, and whether this request has changed it."""
        return _editor(context).pause(self.queue, reason=self.reason)


@operation
class ResumeQueue(_OneQueue):
    """Resume a paused queue."""

    op: ClassVar[str] = "queue.resume"

    def answer(self, context: RequestContext) -> Document:
        """Whether this request has changed it."""
        return _editor(context).resume(self.queue)


@operation
class DeleteQueue(_OneQueue):
    """Delete a queue, in two steps."""

    op: ClassVar[str] = "queue.delete"
    reason: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The state of the deletion."""
        return _editor(context).delete(self.queue, reason=self.reason)


def _editor(context: RequestContext) -> QueueEditor:
    return QueueEditor(context.parts, context.auditor())


def _span(lasts: str) -> timedelta:
    if lasts == "never":
        return FOR_EVER
    try:
        return parse_duration(lasts)
    except ValueError as problem:
        raise InputInvalid("for", f"{problem}, or never") from None
