"""Submitting many drafts: several at a time, answered in their order, the bad ones listed and not in the way.

The invariant: what is reported as submitted is stored, and of a refused draft nothing is.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from rdq_core.engine.ports import Submission
from rdq_core.engine.submit import Draft, Submitter
from rdq_core.errors import InputInvalid, QueueNotFound, RdqError, StoreFailed, TaskConflict, Unavailable

_AT_ONCE: Final = 8
_AHEAD: Final = 4 * _AT_ONCE
_REFUSALS: Final = (InputInvalid, QueueNotFound, TaskConflict)


@dataclass(frozen=True, slots=True)
class Line:
    """A draft with the number of the line that it came from, or why that line is none. The number is None where there
    was no file.
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
    """What became of each line, in order. `stopped_by` is set when storage failed: the lines after the last one listed
    were not submitted.
    """

    submitted: list[Submitted] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    stopped_by: RdqError | None = None


class BulkSubmitter:
    """Submits lines through a `Submitter`, from a few threads."""

    def __init__(self, submitter: Submitter) -> None:
        self._submitter = submitter

    def submit(
        self, lines: Iterable[Line], *, atomic: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> BulkReport:
        """Store what can be stored. With `atomic` every line is checked first, and one bad line keeps all of them out.

        A failure of storage ends it: its lines are rejected, and `stopped_by` tells. `on_progress` is called with the
        number of lines that are done.
        """
        if atomic:
            lines = list(lines)
            report = BulkReport(rejected=[refusal for line in lines if (refusal := self._refusal(line))])
            if report.rejected:
                return report
        return self._submit_all(lines, on_progress or _nobody)

    def _submit_all(self, lines: Iterable[Line], on_progress: Callable[[int], None]) -> BulkReport:
        report = BulkReport()
        for done, (line, answer) in enumerate(self._answers(lines, report), start=1):
            if isinstance(answer, Submission):
                report.submitted.append(Submitted(answer.task.id, answer.created, line.number))
            else:
                report.rejected.append(rejection(line.number, answer))
                if not isinstance(answer, _REFUSALS):
                    report.stopped_by = report.stopped_by or answer
            on_progress(done)
        return report

    def _answers(self, lines: Iterable[Line], report: BulkReport) -> Iterator[tuple[Line, Submission | RdqError]]:
        """Each line with what became of it, in order, a bounded number of them under way."""
        waiting: deque[tuple[Line, Future[Submission | RdqError]]] = deque()
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rdq-submit") as pool:
            for line in lines:
                waiting.append((line, pool.submit(self._submit_one, line)))
                if len(waiting) >= _AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result()
                if report.stopped_by is not None:
                    break
            yield from ((line, future.result()) for line, future in waiting)

    def _submit_one(self, line: Line) -> Submission | RdqError:
        if isinstance(line.draft, RdqError):
            return line.draft
        try:
            return self._submitter.submit(line.draft)
        except (*_REFUSALS, StoreFailed, Unavailable) as error:
            return error

    def _refusal(self, line: Line) -> Rejected | None:
        if isinstance(line.draft, RdqError):
            return rejection(line.number, line.draft)
        try:
            self._submitter.check(line.draft)
        except _REFUSALS as error:
            return rejection(line.number, error)
        return None


def rejection(line: int | None, error: RdqError) -> Rejected:
    """Why a line was refused: the field and the message, never the value."""
    field_name = error.field if isinstance(error, InputInvalid) else None
    if isinstance(error, QueueNotFound):
        field_name = "queue"
    return Rejected(line, error.code, field_name, error.problem if isinstance(error, InputInvalid) else error.message)


def _nobody(_done: int) -> None:
    """Progress that nobody watches."""
