"""Store and receiver held against each other, task by task: nothing lost, every request an attempt
on record.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rdq_core.cli.demo.receiver import ACCEPT, Request
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.task import Status, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of all tasks, and where the two accounts of it disagree.

    `unsent` counts attempts without a request: a worker was killed before it got that far.
    `repeated` counts deliveries that the receiver accepted more than once: at least once is what
    rdq promises.
    """

    submitted: int
    succeeded: int
    dead: int
    requests: int
    attempts: int
    lapsed: int
    unsent: int
    repeated: int
    disagreements: Sequence[str] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape, without the disagreements."""
        names = (
            "submitted",
            "succeeded",
            "dead",
            "requests",
            "attempts",
            "lapsed",
            "unsent",
            "repeated",
        )
        return {name: getattr(self, name) for name in names}


def judge(
    submitted: Mapping[str, str], tasks: Mapping[str, Task | None], log: Sequence[Request]
) -> Verdict:
    """Compare. `submitted` gives the SHA-256 of each id's payload, `tasks` what the store answered
    for each.
    """
    found = {task_id: task for task_id, task in tasks.items() if task is not None}
    attempts = [attempt for task in found.values() for attempt in task.attempts]
    accepted = Counter(request.task_id for request in log if request.answer == ACCEPT)
    by_task = _by_task(log)
    problems = [
        f"the receiver saw {task_id}, which nobody submitted"
        for task_id in sorted(by_task.keys() - submitted)
    ]
    for task_id, sha256 in submitted.items():
        problems += _problems(task_id, sha256, found.get(task_id), by_task.get(task_id, ()))
    return Verdict(
        submitted=len(submitted),
        succeeded=sum(task.status is Status.SUCCEEDED for task in found.values()),
        dead=sum(task.status is Status.DEAD for task in found.values()),
        requests=len(log),
        attempts=len(attempts),
        lapsed=sum(attempt.outcome is Outcome.LEASE_EXPIRED for attempt in attempts),
        unsent=len(attempts) - len({(request.task_id, request.attempt_no) for request in log}),
        repeated=sum(times > 1 for times in accepted.values()),
        disagreements=tuple(problems),
    )


def _by_task(log: Iterable[Request]) -> dict[str, list[Request]]:
    by_task: dict[str, list[Request]] = {}
    for request in log:
        by_task.setdefault(request.task_id, []).append(request)
    return by_task


def _problems(
    task_id: str, sha256: str, task: Task | None, requests: Sequence[Request]
) -> list[str]:
    if task is None:
        return [f"{task_id} is lost"]
    problems = (
        []
        if task.status in (Status.SUCCEEDED, Status.DEAD)
        else [f"{task_id} is still {task.status}"]
    )
    numbers = [attempt.attempt_no for attempt in task.attempts]
    if numbers != list(range(1, len(numbers) + 1)):
        problems.append(f"{task_id} has attempts {numbers}")
    if any(request.sha256 != sha256 for request in requests):
        problems.append(f"{task_id} arrived changed")
    seen = Counter(request.attempt_no for request in requests)
    problems += [
        f"{task_id}: attempt {number} made {times} requests"
        for number, times in seen.items()
        if times > 1
    ]
    problems += [
        f"{task_id}: request {number} is no attempt on record"
        for number in sorted(seen.keys() - set(numbers))
    ]
    answers = {request.attempt_no: request.answer for request in requests}
    return problems + [
        f"{task_id}: attempt {attempt.attempt_no} is {attempt.outcome}, the receiver said {answers[attempt.attempt_no]}"
        for attempt in task.attempts
        if attempt.attempt_no in answers and not _agree(attempt, answers[attempt.attempt_no])
    ]


def _agree(attempt: Attempt, answer: str) -> bool:
    """A success was accepted. What was accepted is a success, where the worker has heard of it."""
    if attempt.outcome is Outcome.SUCCESS:
        return answer == ACCEPT
    return answer != ACCEPT or not _may_have_heard(attempt)


def _may_have_heard(attempt: Attempt) -> bool:
    """False for a worker that was killed with the answer in hand, or that had given up waiting for
    it.
    """
    gave_up = attempt.error is not None and "Timeout" in attempt.error.type
    return attempt.outcome is not Outcome.LEASE_EXPIRED and not gave_up
