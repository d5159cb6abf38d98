"""Redrives and purges as jobs: watched, stopped half-way, continued and cancelled."""

import signal
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.cli.connection import OperatorClient
from rdq_core.domain.times import parse_time
from rdq_core.engine.events import Quiet
from rdq_core.ops.advancing import Advancer
from rdq_core.runtime import wiring
from rdq_core.runtime.wiring import connect
from rdq_core.testing.faults import FaultScript
from tests.cli.conftest import ANN, DeadLetter, Ended, Shell
from tests.cli.test_dlq import dead

NOBODY = "01J00000000000000000000000"


@pytest.fixture
def many(rdq: Shell, dead_letter: DeadLetter) -> list[str]:
    """Six dead tasks."""
    return [dead_letter() for _ in range(6)]


def job_of(ended: Ended) -> str:
    job_id: str = ended.document["job_id"]
    return job_id


def records(rdq: Shell) -> list[tuple[str, str, str]]:
    items = rdq("audit", "list", "billing", "--json").document["items"]
    told = [(item["operation"], item["phase"], item["reason"]) for item in reversed(items)]
    return [record for record in told if not record[0].startswith("queue.")]


def test_a_redrive_keeps_its_pace(rdq: Shell, many: list[str]) -> None:
    answer = rdq("dlq", "redrive", "billing", "--all", "--rate", "6/m", "--yes", "--json")
    assert (answer.code, answer.document["done"]) == (0, 6)
    job = rdq("job", "get", job_of(answer), "--json").document
    took = parse_time(job["ended_at"], "ended") - parse_time(job["created_at"], "created")
    assert took >= timedelta(seconds=50)
    assert dead(rdq) == []


def test_who_did_it_and_why_is_on_record(rdq: Shell, many: list[str]) -> None:
    rdq("dlq", "redrive", "billing", many[0], "--reason", "one by hand")
    rdq("dlq", "redrive", "billing", "--all", "--reason", "bug 17 is mended", "--yes")
    assert records(rdq) == [
        ("dlq.redrive", "intent", "one by hand"),
        ("dlq.redrive", "done", "one by hand"),
        ("dlq.redrive", "intent", "bug 17 is mended"),
        ("dlq.redrive", "done", "bug 17 is mended"),
    ]
    last = rdq("audit", "list", "billing", "--json").document["items"][0]
    assert (last["principal"], last["verified"], last["detail"]["done"]) == (ANN, True, 5)


def test_what_is_detached_is_left_to_others(rdq: Shell, many: list[str]) -> None:
    answer = rdq("dlq", "redrive", "billing", "--all", "--yes", "--detach", "--json")
    assert (answer.code, answer.document["done"], len(dead(rdq))) == (0, 0, 6)

    assert rdq("job", "resume", job_of(answer), "--json").document["done"] == 6
    assert dead(rdq) == []


class Impatient:
    """A person who presses Ctrl-C when a command has waited so often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
        self._left = after
        wait = OperatorClient.wait

        def waits(client: OperatorClient, seconds: float) -> None:
            wait(client, seconds)
            self._left -= 1
            if self._left == 0:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(OperatorClient, "wait", waits)


def test_ctrl_c_stops_at_a_checkpoint_and_says_how_to_go_on(
    rdq: Shell, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rdq("dlq", "list", "billing")
    with monkeypatch.context() as patch:
        Impatient(patch, after=2)
        answer = rdq("dlq", "redrive", "billing", "--all", "--rate", "2/s", "--yes")
    assert (answer.code, answer.out) == (130, "")
    job_id = answer.err.split("rdq job resume ")[1].strip()
    left = len(dead(rdq))
    assert 0 < left < 6
    assert rdq("job", "get", job_id, "--json").document["state"] == "paused"
    assert rdq("job", "list", "--json").document["items"][0]["job_id"] == job_id

    assert rdq("job", "resume", job_id).code == 0

    assert dead(rdq) == []
    assert rdq("job", "get", job_id, "--json").document["done"] == 6


def test_ctrl_c_comes_too_late_for_a_job_that_others_have_finished(
    rdq: Shell, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def finished_by_others(client: OperatorClient, _seconds: float) -> None:
        parts = connect(events=Quiet())
        (job,) = parts.jobs.open_jobs()
        while not job.state.is_over:
            job = Advancer(parts, at_once=8).advance(job, take_over=True)
            if not job.state.is_over:
                hurried = job.changed(due_at=parts.clock.now())
                parts.jobs.replace(job, hurried)
                job = hurried
        signal.raise_signal(signal.SIGINT)

    begun = rdq(
        "dlq", "redrive", "billing", "--all", "--rate", "2/s", "--yes", "--detach", "--json"
    )
    with monkeypatch.context() as patch:
        patch.setattr(OperatorClient, "wait", finished_by_others)
        answer = rdq("job", "resume", job_of(begun), "--json")
    assert (answer.code, answer.document["done"]) == (0, 6)


def test_a_storage_failure_half_way_says_how_to_go_on(rdq: Shell, many: list[str]) -> None:
    with FaultScript(wiring.dynamodb_client()) as script:
        script.reject("AccessDeniedException", "TransactWriteItems", nth=3)
        answer = rdq("dlq", "redrive", "billing", "--all", "--yes", "--json")
    assert (answer.code, answer.out) == (5, "")
    assert "TransactWriteItems" in answer.error["message"]
    job_id = answer.error["hint"].rpartition(" ")[2]

    done = rdq("job", "resume", job_id, "--json").document

    assert (done["done"], done["skipped"]) == (6, 0)
    for task_id in many:
        assert rdq("task", "get", task_id, "--json").document["redrive_count"] == 1


def test_a_canary_that_fails_leaves_the_rest_and_says_so(rdq: Shell, many: list[str]) -> None:
    canary = ("--canary", "2", "--canary-wait", "10s")
    answer = rdq("dlq", "redrive", "billing", "--all", *canary, "--yes")
    assert answer.code == 4
    assert "STOPPED: 0 of the first 2 succeeded, and 2 were required" in answer.out
    assert len(dead(rdq)) == 4


def test_a_cancelled_job_leaves_the_rest(rdq: Shell, many: list[str]) -> None:
    job_id = job_of(rdq("dlq", "purge", "billing", "--all", "--yes", "--detach", "--json"))
    assert "cancelled after 0 tasks" in rdq("job", "cancel", job_id, "--reason", "a mistake").out
    assert len(dead(rdq)) == 6
    again = rdq("job", "cancel", job_id, "--json")
    assert (again.code, again.error["code"]) == (4, "task_conflict")
    watched = rdq("job", "watch", job_id, "--json")
    assert (watched.code, watched.document["done"]) == (4, 0)
    assert ("job.cancel", "done", "a mistake") in records(rdq)


def test_a_purge_removes_for_good_and_asks_before_even_for_one(rdq: Shell, many: list[str]) -> None:
    refused = rdq("dlq", "purge", "billing", many[0], "--json")
    assert (refused.code, refused.error["code"]) == (2, "usage")
    assert "--yes" in refused.error["hint"]
    assert len(dead(rdq)) == 6

    assert rdq("dlq", "purge", "billing", many[0], "--yes", "--json").document["done"] == 1
    assert rdq("task", "get", many[0], "--json").code == 3
    answer = rdq("dlq", "purge", "billing", "--type", "*Abort", "--yes", "--json")
    assert answer.document["done"] == 5
    assert dead(rdq) == []


def test_a_dry_run_for_people_is_priced(rdq: Shell, many: list[str]) -> None:
    out = rdq("dlq", "redrive", "billing", "--all", "--dry-run").out
    assert "6 tasks would be sent back to billing; nothing was changed" in out
    assert "66 write units, about $0.0000" in out
    assert "6 B" in out


def test_without_jobs_the_list_is_empty(rdq: Shell) -> None:
    assert "there are no jobs" in rdq("job", "list").out
    for command in ("get", "watch", "resume", "cancel"):
        answer = rdq("job", command, NOBODY, "--json")
        assert (answer.code, answer.error["code"]) == (3, "task_not_found")


def test_a_job_has_its_fixed_shape(rdq: Shell, many: list[str]) -> None:
    job_id = job_of(rdq("dlq", "redrive", "billing", "--all", "--yes", "--reason", "r", "--json"))
    job: dict[str, Any] = rdq("job", "get", job_id, "--json").document
    assert rdq("job", "list", "--json").document["items"] == [job]
    assert {
        name: job[name]
        for name in ("job_id", "operation", "queue", "state", "done", "expected", "reason")
    } == {
        "job_id": job_id,
        "operation": "dlq.redrive",
        "queue": "billing",
        "state": "done",
        "done": 6,
        "expected": 6,
        "reason": "r",
    }
    assert "redrive of billing: done" in rdq("job", "get", job_id[-8:]).out
    assert job_id[-8:] in rdq("job", "list").out
    assert rdq("job", "get", "ZZZZ", "--json").code == 3
    assert rdq("job", "get", "no-id", "--json").code == 2
