"""Assertions on the attempts of one task.

    local.history(receipt).failed(ConnectionError, times=2).failed("stripe.Timeout").succeeded()
    local.history(receipt).failed(code="card_declined").dead("card_declined")

Each step asserts the next attempt. The last step asserts how the task ended, and that no attempts
follow. An AssertionError shows the whole history.
"""

from itertools import pairwise
from typing import Self

from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.task import Status, Task
from rdq_core.domain.units import format_duration
from rdq_core.testing.spans import Span, span_of

Expected = type[BaseException] | str | None


class History:
    """One task as it was when it was read."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._place = 0

    # -- attempts ----------------------------------------------------------------------------------

    def failed(
        self,
        error: Expected = None,
        *,
        code: str | None = None,
        times: int | None = 1,
        permanent: bool | None = None,
    ) -> Self:
        """The next `times` attempts failed; with None, one or more, up to the next success.

        `error` is the exception's class or the full name of its type, `code` the failure code;
        `permanent` says whether another attempt was ruled out. None accepts any value.
        """
        for _ in range(times or max(self._failures_ahead(), 1)):
            attempt = self._next("failed")
            self._require(attempt.outcome is not Outcome.SUCCESS, "an attempt that failed")
            self._check_error(attempt, error, code)
            is_permanent = attempt.outcome is Outcome.PERMANENT_FAILURE
            self._require(
                permanent in (None, is_permanent), "permanent" if permanent else "worth another try"
            )
        return self

    def lapsed(self, *, times: int = 1) -> Self:
        """The leases of the next `times` attempts lapsed."""
        for _ in range(times):
            self._require(
                self._next("lapsed").outcome is Outcome.LEASE_EXPIRED, "a lease that ended"
            )
        return self

    def waited(self, *spans: Span) -> Self:
        """The waits between attempts, from the end of one to the start of the next, are exactly
        these.
        """
        attempts = self.task.attempts
        waits = [
            after.started_at - (before.finished_at or before.started_at)
            for before, after in pairwise(attempts)
        ]
        actual = ", ".join(map(format_duration, waits)) or "none"
        expected = [span_of("waited", span) for span in spans]
        self._require(
            waits == expected,
            f"waits of {', '.join(map(format_duration, expected)) or 'none'}, not of {actual}",
        )
        return self

    # -- ends --------------------------------------------------------------------------------------

    def succeeded(self) -> Task:
        """The next attempt was the last, and succeeded. Returns the task, for its result."""
        self._require(
            self._next("succeeded").outcome is Outcome.SUCCESS, "an attempt that succeeded"
        )
        return self._ended(Status.SUCCEEDED)

    def dead(self, code: str | None = None) -> Task:
        """No attempts follow, and the task is in the DLQ, with this failure code if one is
        given.
        """
        task = self._ended(Status.DEAD)
        self._require(
            code is None or (task.failure is not None and task.failure.code == code),
            f"dead of {code}",
        )
        return task

    def pending(self, *, due_in: Span | None = None) -> Task:
        """No attempts follow yet, and the task waits.

        `due_in` is the time from the end of the last attempt until the task is due.
        """
        task = self._ended(Status.PENDING)
        if due_in is not None:
            last = task.attempts[-1].finished_at if task.attempts else task.created_at
            self._require(
                task.next_attempt_at == (last or task.created_at) + span_of("due_in", due_in),
                f"due in {due_in}",
            )
        return task

    def cancelled(self) -> Task:
        """No attempts follow, and the task was cancelled."""
        return self._ended(Status.CANCELLED)

    def __str__(self) -> str:
        lines = [f"task {self.task.id} is {self.task.status}"]
        lines += [_line(attempt) for attempt in self.task.attempts]
        return "\n".join(lines)

    # -- inside ------------------------------------------------------------------------------------

    def _failures_ahead(self) -> int:
        ahead = self.task.attempts[self._place :]
        ended = (place for place, attempt in enumerate(ahead) if attempt.outcome is Outcome.SUCCESS)
        return next(ended, len(ahead))

    def _next(self, what: str) -> Attempt:
        self._require(self._place < len(self.task.attempts), f"one more attempt, which {what}")
        self._place += 1
        return self.task.attempts[self._place - 1]

    def _ended(self, status: Status) -> Task:
        self._require(self.task.status is status, str(status))
        self._require(self._place == len(self.task.attempts), "no more attempts")
        return self.task

    def _check_error(self, attempt: Attempt, error: Expected, code: str | None) -> None:
        found = attempt.error
        wanted = error if error is None or isinstance(error, str) else _name(error)
        self._require(
            wanted is None or (found is not None and found.type == wanted),
            f"an error of type {wanted}",
        )
        self._require(
            code is None or (found is not None and found.code == code),
            f"an error with the code {code}",
        )

    # a condition, as in assert
    def _require(self, holds: bool, wanted: str) -> None:  # noqa: FBT001
        if not holds:
            place = f"attempt {self._place}: " if self._place else ""
            raise AssertionError(f"{place}expected {wanted}\n{self}")


def _name(error: type[BaseException]) -> str:
    return (
        error.__qualname__
        if error.__module__ == "builtins"
        else f"{error.__module__}.{error.__qualname__}"
    )


def _line(attempt: Attempt) -> str:
    error = (
        ""
        if attempt.error is None
        else f" {attempt.error.type} ({attempt.error.code}): {attempt.error.message}"
    )
    return (
        f"  {attempt.attempt_no}. {attempt.started_at:%Y-%m-%d %H:%M:%S} {attempt.outcome}{error}"
    )
