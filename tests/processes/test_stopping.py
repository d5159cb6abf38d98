"""Real worker processes that are told to stop, or whose handlers end them or won't let anything
else run.
"""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from rdq_core.client.rdq import Rdq
from rdq_core.domain.attempt import Outcome
from rdq_core.domain.task import Status, Task
from tests.engine.world import until
from tests.processes.commands import TABLES, Commands
from tests.support.engines import Engine

pytestmark = [pytest.mark.processes, pytest.mark.ministack]

PATIENCE: Final = 30
DRAIN: Final = ("stubborn", "--drain", "--drain-horizon", "10s")
QUEUES: Final = b"""
config_version: 1
queues:
  stopping:
    retry: {max_attempts: 2, initial_backoff: 100ms}
    execution: {lease: 5s, handler_timeout: 50s, heartbeat: 1s}
    dispatch: {poll_interval: 100ms}
    index_shards: 1
"""


class Stage:
    """One queue on ministack, and a folder where handlers leave a mark as they start."""

    def __init__(self, engine: Engine, marks: Path) -> None:
        self.marks = marks
        self.rdq = Commands(engine, MARKS=str(marks))
        self.second = Commands(engine, MARKS=str(marks), SECOND_WORKER="yes")
        self._client = Rdq(client=engine.client("dynamodb"), tables=TABLES)
        self.rdq.run("init")
        self.rdq.run("queue", "apply", "-", given=QUEUES)

    def submit(self, *refs: str) -> Mapping[str, str]:
        """One task for each handler; their ids by the handler."""
        return {ref: self._client.submit("stopping", ref, ref).id for ref in refs}

    def task(self, task_id: str) -> Task:
        return self._client.get(task_id)

    def wait_for(self, *refs: str) -> None:
        """Until these handlers have started."""
        self.wait_until(lambda: all((self.marks / ref).exists() for ref in refs))

    @staticmethod
    def wait_until(condition: Callable[[], bool]) -> None:
        """Until it has come to this in another process."""
        until(condition, patience=PATIENCE, every=0.02)

    def has_been_renewed(self, task_id: str, *, times: int) -> Callable[[], bool]:
        """Whether as many leases of a running task have been seen, one after the other."""
        seen = set[datetime | None]()

        def look() -> bool:
            seen.add(self.task(task_id).lease_expires_at)
            return len(seen) > times

        return look

    @contextmanager
    def worker(self, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A worker that doesn't outlive the test."""
        with self.rdq.worker(*arguments) as process:
            try:
                yield process
            finally:
                process.kill()


def report_of(worker: "subprocess.Popen[bytes]") -> Any:
    """What a worker printed that ended well."""
    out, _ = worker.communicate(timeout=PATIENCE)
    assert worker.returncode == 0
    return json.loads(out)["total"]


@pytest.fixture
def stage(ministack: Engine, tmp_path: Path) -> Stage:
    return Stage(ministack, tmp_path)


def assert_released(task: Task) -> None:
    assert task.failure is not None
    assert (task.status, task.failure.code) == (Status.PENDING, "worker_shutdown")
    assert (task.attempt_count, task.attempts) == (0, ())


def test_sigterm_lets_finish_who_can_and_releases_who_gives_up_and_the_second_one_releases_the_rest(
    stage: Stage,
) -> None:
    tasks = stage.submit("finishes", "cooperates", "ignores")
    with stage.worker("stubborn", "--grace", "1h") as worker:
        stage.wait_for(*tasks)
        worker.send_signal(signal.SIGTERM)
        stage.wait_until(lambda: stage.task(tasks["cooperates"]).status is Status.PENDING)
        (stage.marks / "told").touch()
        stage.wait_until(lambda: stage.task(tasks["finishes"]).status is Status.SUCCEEDED)
        worker.send_signal(signal.SIGTERM)
        report = report_of(worker)
    assert (report["claimed"], report["completed"], report["released"]) == (3, 1, 2)
    for ref in ("cooperates", "ignores"):
        assert_released(stage.task(tasks[ref]))
    assert (
        report_of(stage.second.worker("stubborn", "--drain", "--drain-horizon", "1s"))["completed"]
        == 2
    )
    assert {stage.task(task_id).attempts[0].attempt_no for task_id in tasks.values()} == {1}


def test_a_handler_that_ignores_sigterm_is_released_when_the_grace_is_over(stage: Stage) -> None:
    tasks = stage.submit("ignores")
    with stage.worker("stubborn", "--grace", "1s") as worker:
        stage.wait_for("ignores")
        worker.send_signal(signal.SIGTERM)
        assert report_of(worker)["released"] == 1
    assert_released(stage.task(tasks["ignores"]))


def test_a_handler_that_ends_its_worker_each_time_ends_in_the_dlq(stage: Stage) -> None:
    task_id = stage.submit("exits")["exits"]
    for _ in range(2):
        with stage.worker(*DRAIN) as worker:
            worker.communicate(timeout=PATIENCE)
            assert worker.returncode == 7
    with stage.worker(*DRAIN) as worker:
        assert report_of(worker)["dead_lettered"] == 1
    task = stage.task(task_id)
    assert task.failure is not None
    assert (task.status, task.failure.code) == (Status.DEAD, "task_lease_expired")
    assert [attempt.outcome for attempt in task.attempts] == [Outcome.LEASE_EXPIRED] * 2


def test_a_loop_that_never_pauses_and_a_sleeping_coroutine_keep_their_leases(stage: Stage) -> None:
    tasks = stage.submit("spins", "sleeps")
    with stage.worker(*DRAIN) as worker:
        stage.wait_for(*tasks)
        for task_id in tasks.values():
            stage.wait_until(stage.has_been_renewed(task_id, times=5))
        (stage.marks / "told").touch()
        report = report_of(worker)
    assert (report["claimed"], report["completed"]) == (2, 2)
    for task_id in tasks.values():
        assert [attempt.outcome for attempt in stage.task(task_id).attempts] == [Outcome.SUCCESS]
