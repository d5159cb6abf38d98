"""Real processes, one of them killed with requests open: nothing is lost, and the record says what
happened.
"""

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from rdq_core.client.rdq import Rdq
from rdq_core.domain.attempt import Outcome
from rdq_core.domain.task import Status, Task
from tests.processes.commands import TABLES, Commands
from tests.processes.receiver import HoldingReceiver, Request
from tests.support.engines import Engine

pytestmark = [pytest.mark.processes, pytest.mark.ministack]

TASKS: Final = 1_000
HELD: Final = 3
CONCURRENCY: Final = 8


def submitted(rdq: Commands) -> dict[str, bytes]:
    """A thousand tasks, as a person would submit them: each id with its payload."""
    payloads = [f'{{"delivery": {number}}}'.encode() for number in range(TASKS)]
    answer = rdq.run(
        "submit",
        "-q",
        "deliveries",
        "-H",
        "deliver",
        "--payloads",
        "-",
        given=b"\n".join([*payloads, b""]),
    )
    assert answer["rejected"] == []
    assert [each["line"] for each in answer["submitted"]] == list(range(1, TASKS + 1))
    return {
        each["id"]: payload for each, payload in zip(answer["submitted"], payloads, strict=True)
    }


def with_one_killed(rdq: Commands, receiver: HoldingReceiver) -> Sequence[Request]:
    """Two workers until the work is done; one is killed while the receiver holds its requests. What
    it held then.
    """
    arguments = ("handlers", "--drain", "--drain-horizon", "15s")
    workers = [rdq.worker(*arguments), rdq.worker(*arguments)]
    try:
        held = receiver.wait_until_held(HELD, seconds=60)
        victim = next(worker for worker in workers if worker.pid == receiver.victim)
        victim.send_signal(signal.SIGKILL)
        assert victim.wait(10) == -signal.SIGKILL
        receiver.release()
        survivor = next(worker for worker in workers if worker is not victim)
        assert survivor.wait(120) == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    return held


def read_back(engine: Engine, ids: Sequence[str]) -> Mapping[str, Task]:
    rdq = Rdq(client=engine.client("dynamodb"), tables=TABLES)
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(ids, pool.map(rdq.get, ids), strict=True))


@pytest.mark.parametrize("kill_at", [1, 150, 400, 700, 950])
def test_a_killed_worker_loses_nothing_and_is_on_record(ministack: Engine, kill_at: int) -> None:
    with HoldingReceiver(hold_from=kill_at) as receiver:
        rdq = Commands(ministack, RECEIVER=receiver.url)
        rdq.run("init")
        rdq.run("queue", "apply", "queues.yaml")
        payloads = submitted(rdq)
        held = with_one_killed(rdq, receiver)
        stats = rdq.run("queue", "stats", "deliveries")
        tasks = read_back(ministack, list(payloads))
        log = receiver.log

    assert len(payloads) == TASKS
    assert {name: stats[name] for name in ("pending", "in_flight", "dead")} == {
        "pending": 0,
        "in_flight": 0,
        "dead": 0,
    }
    assert all(request.body == payloads[request.task_id] for request in log)
    assert {request.task_id for request in log} == tasks.keys() == payloads.keys()
    assert_held_ones_lapsed(tasks, held)
    for task in tasks.values():
        assert_one_end(task)
    assert_requests_are_attempts(tasks, log)


def assert_held_ones_lapsed(tasks: Mapping[str, Task], held: Sequence[Request]) -> None:
    assert len(held) >= HELD
    for request in held:
        assert (
            tasks[request.task_id].attempts[request.attempt_no - 1].outcome is Outcome.LEASE_EXPIRED
        )
    lapsed = [
        attempt
        for task in tasks.values()
        for attempt in task.attempts
        if attempt.finished_at is None
    ]
    assert HELD <= len(lapsed) <= CONCURRENCY
    assert {attempt.outcome for attempt in lapsed} == {Outcome.LEASE_EXPIRED}


def assert_one_end(task: Task) -> None:
    outcomes = [attempt.outcome for attempt in task.attempts]
    assert task.status is Status.SUCCEEDED
    assert outcomes == [Outcome.LEASE_EXPIRED] * (len(outcomes) - 1) + [Outcome.SUCCESS]
    assert [attempt.attempt_no for attempt in task.attempts] == list(range(1, len(outcomes) + 1))


def assert_requests_are_attempts(tasks: Mapping[str, Task], log: Sequence[Request]) -> None:
    """Each request is one attempt on record; an attempt without one is a claim that the killed
    worker never began.
    """
    requests = Counter((request.task_id, request.attempt_no) for request in log)
    attempts = {
        (task.id, attempt.attempt_no): attempt
        for task in tasks.values()
        for attempt in task.attempts
    }
    assert set(requests.values()) == {1}
    assert requests.keys() <= attempts.keys()
    unsent = [attempts[key] for key in attempts.keys() - requests.keys()]
    assert all(attempt.outcome is Outcome.LEASE_EXPIRED for attempt in unsent)
