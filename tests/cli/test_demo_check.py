"""The demo's check: it finds every disagreement of store and receiver, and no other."""

import hashlib
from datetime import timedelta
from typing import Final

import pytest

from rdq_core.cli.demo.check import Comparison, compare
from rdq_core.cli.demo.receiver import ACCEPT, CRASH, LoggedRequest
from rdq_core.domain.attempt import Attempt, AttemptError, Outcome
from rdq_core.domain.task import Status, Task
from rdq_core.testing.clock import NOON
from rdq_core.testing.contract.factories import a_task

SHA: Final = hashlib.sha256(b"body").hexdigest()
OUTCOMES: Final = {
    "s": Outcome.SUCCESS,
    "f": Outcome.RETRYABLE_FAILURE,
    "t": Outcome.RETRYABLE_FAILURE,
    "x": Outcome.LEASE_EXPIRED,
}
ERRORS: Final = {"f": AttemptError(type="HTTPError"), "t": AttemptError(type="TimeoutError")}


def a_task_with(history: str, status: Status = Status.SUCCEEDED) -> Task:
    """A task and how its attempts ended: success, failure, timeout, expired lease (x)."""
    attempts = tuple(
        Attempt(
            attempt_no=number,
            started_at=NOON,
            finished_at=NOON + timedelta(seconds=1),
            outcome=OUTCOMES[end],
            error=ERRORS.get(end),
        )
        for number, end in enumerate(history, start=1)
    )
    return a_task(id="T", status=status, attempts=attempts)


def requests(*answers: str, sha256: str = SHA) -> list[LoggedRequest]:
    return [
        LoggedRequest("T", number, "acme", sha256, answer)
        for number, answer in enumerate(answers, start=1)
    ]


def compared(task: Task | None, log: list[LoggedRequest]) -> Comparison:
    return compare({"T": SHA}, {"T": task}, log)


@pytest.mark.parametrize(
    ("task", "log"),
    [
        (a_task_with("s"), requests(ACCEPT)),
        (a_task_with("ffs"), requests("503", "503", ACCEPT)),
        (a_task_with("f", Status.DEAD), requests("410")),
        (a_task_with("xs"), requests(CRASH, ACCEPT)),
        # Killed after the answer arrived, so delivered twice.
        (a_task_with("xs"), requests(ACCEPT, ACCEPT)),
        # Accepted, but the answer came too late, so delivered twice.
        (a_task_with("ts"), requests(ACCEPT, ACCEPT)),
        # Killed before the request.
        (a_task_with("xs"), [LoggedRequest("T", 2, "acme", SHA, ACCEPT)]),
    ],
)
def test_what_may_happen_is_no_disagreement(task: Task, log: list[LoggedRequest]) -> None:
    assert compared(task, log).disagreements == ()


@pytest.mark.parametrize(
    ("task", "log", "problem"),
    [
        (None, requests(ACCEPT), "is lost"),
        (a_task_with("f", Status.PENDING), requests("503"), "still PENDING"),
        (a_task_with("s"), requests(ACCEPT, ACCEPT), "request 2 without a recorded attempt"),
        (a_task_with("s"), requests("503"), "was answered 503"),
        (a_task_with("f", Status.DEAD), requests(ACCEPT), "was answered accept"),
        (a_task_with("s"), requests(ACCEPT, sha256="other"), "arrived with another payload"),
        (a_task_with("s"), requests(ACCEPT) * 2, "sent 2 requests"),
        (
            a_task_with("s"),
            [*requests(ACCEPT), LoggedRequest("U", 1, "acme", SHA, ACCEPT)],
            "never submitted",
        ),
    ],
)
def test_a_disagreement_is_found(task: Task | None, log: list[LoggedRequest], problem: str) -> None:
    (disagreement,) = compared(task, log).disagreements
    assert problem in disagreement
