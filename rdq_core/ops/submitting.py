"""Submitting many drafts: a run of them at a time, answered in their order, the bad ones listed and
not in the way.

The invariant: what is reported as submitted is stored, and of a refused draft nothing is.
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
    """A draft with the number of the line that it came from, or why that line is none. The number
    is None where there was no file.
    """

    number: int | None
    draft: Draft | RdqError


@dataclass(frozen=True, slots=True)
class Submitted:
    """A stored task. `created` is False when it was there already."""

    id: str
    created: bool
    line: int | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line of which nothing was stored. `field` is None where no single value is to blame."""

    line: int | None
    code: str
    field: str | None
    message: str


@dataclass(slots=True)
class BulkReport:
    """What became of each line, in order. `stopped_by` is set when storage failed: the lines after
    the last one listed were not submitted.
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
        """Store what can be stored. With `atomic` every line is checked first, and one bad line
        keeps all of them out.

        A failure of storage ends it: its lines are rejected, and `stopped_by` tells. `on_progress`
        is called with the number of lines that are done.
        """
        if atomic:
            lines = list(lines)
            report = BulkReport(
                rejected=[refusal for line in lines if (refusal := self._refusal(line))]
            )
            if report.rejected:
                return report
        return self._submit_all(lines, on_progress or _nobody)

    def _submit_all(self, lines: Iterable[Line], on_progress: Callable[[int], None]) -> BulkReport:
        report, numbers = BulkReport(), deque[int | None]()
        for run in self._submitter.submit_many(_remembered(lines, numbers)):
            for answer in run:
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


def _remembered(lines: Iterable[Line], numbers: deque[int | None]) -> Iterator[Draft | RdqError]:
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
    """Why a line was refused: the field and the message, never the value."""
    field_name = error.field if isinstance(error, InputInvalid) else None
    if isinstance(error, QueueNotFound):
        field_name = "queue"
    return Rejected(
        line,
        error.code,
        field_name,
        error.problem if isinstance(error, InputInvalid) else error.message,
    )


def _nobody(_done: int) -> None:
    """Progress that nobody watches."""
