"""Submitting the lines of a file, in batches, with a report of what was stored and refused.

The invariant: what is reported as submitted is stored; of a refused line nothing is stored, unless
storage failed for it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rdq_core.engine.ports import Submission
from rdq_core.engine.submit import Draft, Submitter
from rdq_core.errors import (
    InputInvalid,
    QueueNotFound,
    RdqError,
    StoreFailed,
    TaskConflict,
    Unavailable,
)

_REFUSALS: Final = (InputInvalid, QueueNotFound, TaskConflict)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file: its draft, or the error that it has instead.

    `number` counts from 1; None where there is no file.
    """

    number: int | None
    draft: Draft | RdqError


@dataclass(frozen=True, slots=True)
class Submitted:
    """A stored task and its line, None outside a file.

    `created` is False when the task had already been submitted.
    """

    id: str
    created: bool
    line: int | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A refused line. `field` is None where the problem is not in a single value."""

    line: int | None
    code: str
    field: str | None
    message: str


@dataclass(slots=True)
class BulkReport:
    """The stored and the refused lines, each in their order.

    `stopped_by` is the error of a storage failure: lines after the last listed one were not
    submitted.
    """

    submitted: list[Submitted] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    stopped_by: RdqError | None = None


class BulkSubmitter:
    """Submits lines through a `Submitter`."""

    def __init__(self, submitter: Submitter) -> None:
        self._submitter = submitter

    def submit(
        self,
        lines: Iterable[Line],
        *,
        atomic: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> BulkReport:
        """Store the tasks of valid lines.

        With `atomic` every line is checked first, and nothing is stored when one is refused. A
        failure of storage ends the submit: the batch's failed lines are rejected, and `stopped_by`
        is set. `on_progress` is called with the number of lines done so far.
        """
        if atomic:
            lines = list(lines)
            report = BulkReport(
                rejected=[refusal for line in lines if (refusal := self._refusal(line))]
            )
            if report.rejected:
                return report
        return self._submit_all(lines, on_progress or _no_progress)

    def _submit_all(self, lines: Iterable[Line], on_progress: Callable[[int], None]) -> BulkReport:
        report, numbers = BulkReport(), deque[int | None]()
        for batch in self._submitter.submit_many(_drafts(lines, numbers)):
            for answer in batch:
                _add(report, numbers.popleft(), answer)
                on_progress(len(report.submitted) + len(report.rejected))
            if report.stopped_by is not None:
                break
        return report

    def _refusal(self, line: Line) -> Rejected | None:
        if isinstance(line.draft, RdqError):
            return rejection(line.number, line.draft)
        try:
            self._submitter.check(line.draft)
        except _REFUSALS as error:
            return rejection(line.number, error)
        return None


def _drafts(lines: Iterable[Line], numbers: deque[int | None]) -> Iterator[Draft | RdqError]:
    """The lines' drafts; `numbers` gets the numbers of those that are not answered yet."""
    for line in lines:
        numbers.append(line.number)
        yield line.draft


def _add(report: BulkReport, number: int | None, answer: Submission | RdqError) -> None:
    if isinstance(answer, Submission):
        report.submitted.append(Submitted(answer.task.id, answer.created, number))
        return
    report.rejected.append(rejection(number, answer))
    if isinstance(answer, StoreFailed | Unavailable):
        report.stopped_by = report.stopped_by or answer


def rejection(line: int | None, error: RdqError) -> Rejected:
    """The report of a refused line: the field and the message, never the value."""
    field_name = error.field if isinstance(error, InputInvalid) else None
    if isinstance(error, QueueNotFound):
        field_name = "queue"
    return Rejected(
        line,
        error.code,
        field_name,
        error.problem if isinstance(error, InputInvalid) else error.message,
    )


def _no_progress(_done: int) -> None:
    """The `on_progress` of callers that give none."""
