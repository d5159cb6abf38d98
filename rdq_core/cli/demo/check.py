"""Compares the store with the receiver's log: no task lost, every request a recorded attempt."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rdq_core.cli.demo.receiver import ACCEPT, LoggedRequest
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.task import Status, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Totals of both sides, and the facts they disagree on.

    `unsent` counts attempts without a request: the worker was killed before it sent one. `repeated`
    counts tasks that the receiver accepted more than once, which at-least-once delivery allows.
    """

    submitted: int
    succeeded: int
    dead: int
    requests: int
    attempts: int
    lapsed: int
    unsent: int
    repeated: int
    disagreements: Sequence[str]

    def summary(self) -> dict[str, Any]:
        """The totals, for JSON."""
        totals = asdict(self)
        del totals["disagreements"]
        return totals


def compare(
    submitted: Mapping[str, str], tasks: Mapping[str, Task | None], log: Sequence[LoggedRequest]
) -> Comparison:
    """Compare both sides. `submitted` maps ids to the SHA-256 of their payloads; a task that the
    store does not have is None.
    """
    stored = [task for task in tasks.values() if task is not None]
    attempts = [attempt for task in stored for attempt in task.attempts]
    accepted = Counter(request.task_id for request in log if request.answer == ACCEPT)
    unknown = sorted({request.task_id for request in log} - submitted.keys())
    problems = [f"the receiver got {task_id}, which was never submitted" for task_id in unknown]
    for task_id, sha256 in submitted.items():
        requests = [request for request in log if request.task_id == task_id]
        found = _problems(tasks.get(task_id), sha256, requests)
        problems += [f"{task_id} {problem}" for problem in found]
    return Comparison(
        submitted=len(submitted),
        succeeded=sum(task.status is Status.SUCCEEDED for task in stored),
        dead=sum(task.status is Status.DEAD for task in stored),
        requests=len(log),
        attempts=len(attempts),
        lapsed=sum(attempt.outcome is Outcome.LEASE_EXPIRED for attempt in attempts),
        unsent=len(attempts) - len({(request.task_id, request.attempt_no) for request in log}),
        repeated=sum(times > 1 for times in accepted.values()),
        disagreements=tuple(problems),
    )


def _problems(task: Task | None, sha256: str, requests: Sequence[LoggedRequest]) -> Iterator[str]:
    if task is None:
        yield "is lost"
        return
    if task.status not in (Status.SUCCEEDED, Status.DEAD):
        yield f"is still {task.status}"
    numbers = [attempt.attempt_no for attempt in task.attempts]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"has attempts {numbers}"
    if any(request.sha256 != sha256 for request in requests):
        yield "arrived with another payload"
    sent = Counter(request.attempt_no for request in requests)
    for number, times in sent.items():
        if times > 1:
            yield f"sent {times} requests in attempt {number}"
        if number not in numbers:
            yield f"sent request {number} without a recorded attempt"
    answers = {request.attempt_no: request.answer for request in requests}
    for attempt in task.attempts:
        answer = answers.get(attempt.attempt_no)
        if answer is not None and not _agree(attempt, answer):
            yield f"attempt {attempt.attempt_no} is {attempt.outcome}, but was answered {answer}"


def _agree(attempt: Attempt, answer: str) -> bool:
    """Whether the outcome of an attempt fits the receiver's answer.

    An accepted request may still fail: the worker was killed or timed out before the answer.
    """
    if attempt.outcome is Outcome.SUCCESS:
        return answer == ACCEPT
    timed_out = attempt.error is not None and "Timeout" in attempt.error.type
    return answer != ACCEPT or timed_out or attempt.outcome is Outcome.LEASE_EXPIRED
