"""The demo's verdict: store and receiver agree, and where they don't it says so."""

import hashlib
from datetime import timedelta
from typing import Final

import pytest

from rdq_core.cli.demo.receiver import ACCEPT, CRASH, Request
from rdq_core.cli.demo.verdict import Verdict, judge
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


def a_story(history: str, status: Status = Status.SUCCEEDED) -> Task:
    """A task whose attempts ended so: s for success, f for failure, t for no answer in time, x for
    a lapsed lease.
    """
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


def requests(*answers: str, sha256: str = SHA) -> list[Request]:
    return [
        Request("T", number, "acme", sha256, answer)
        for number, answer in enumerate(answers, start=1)
    ]


def verdict(task: Task | None, log: list[Request]) -> Verdict:
    return judge({"T": SHA}, {"T": task}, log)


@pytest.mark.parametrize(
    ("task", "log"),
    [
        (a_story("s"), requests(ACCEPT)),
        (a_story("ffs"), requests("503", "503", ACCEPT)),
        (a_story("f", Status.DEAD), requests("410")),
        (a_story("xs"), requests(CRASH, ACCEPT)),
        (
            a_story("xs"),
            requests(ACCEPT, ACCEPT),
        ),  # killed with the answer in hand: delivered twice
        (
            a_story("ts"),
            requests(ACCEPT, ACCEPT),
        ),  # accepted, and the answer came too late: delivered twice
        (a_story("xs"), [Request("T", 2, "acme", SHA, ACCEPT)]),  # killed before the request
    ],
)
def test_the_two_books_agree(task: Task, log: list[Request]) -> None:
    assert verdict(task, log).disagreements == ()


@pytest.mark.parametrize(
    ("task", "log", "problem"),
    [
        (None, requests(ACCEPT), "is lost"),
        (a_story("f", Status.PENDING), requests("503"), "still PENDING"),
        (a_story("s"), requests(ACCEPT, ACCEPT), "request 2 is no attempt"),
        (a_story("s"), requests("503"), "the receiver said 503"),
        (a_story("f", Status.DEAD), requests(ACCEPT), "the receiver said accept"),
        (a_story("s"), requests(ACCEPT, sha256="other"), "arrived changed"),
        (a_story("s"), requests(ACCEPT) * 2, "made 2 requests"),
        (
            a_story("s"),
            [*requests(ACCEPT), Request("U", 1, "acme", SHA, ACCEPT)],
            "nobody submitted",
        ),
    ],
)
def test_a_disagreement_is_found(task: Task | None, log: list[Request], problem: str) -> None:
    (found,) = verdict(task, log).disagreements
    assert problem in found
