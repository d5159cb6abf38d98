"""A redrive of two hundred is killed with -9 in the middle, at a terminal that shows a bar; others
finish it.
"""

import json
import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import pytest

from rdq_core.domain.job import JobState
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.engine.auditor import Principal
from rdq_core.engine.events import Quiet
from rdq_core.ops.job_control import JobControl
from rdq_core.ops.orders import Operation, Order
from rdq_core.ops.selection import Selection
from rdq_core.runtime.wiring import Parts, connect
from rdq_core.testing.contract.factories import a_failed, a_grant, a_task
from tests.processes.commands import HERE, RDQ, TABLES, Commands
from tests.support.engines import Engine

pytestmark = [pytest.mark.processes, pytest.mark.ministack]

DEAD: Final = 200
PATIENCE: Final = 120.0


class Field:
    """Two hundred dead tasks on ministack."""

    def __init__(self, engine: Engine) -> None:
        self.rdq = Commands(engine)
        self.environment = {
            **engine.environment,
            "PATH": os.environ["PATH"],
            "NO_PROXY": "127.0.0.1",
            "TERM": "xterm",
        }
        self.rdq.run("init")
        self.rdq.run("queue", "apply", "queues.yaml")
        self.parts: Parts = connect(engine.dynamodb, TABLES, events=Quiet())
        with ThreadPoolExecutor(8) as pool:
            self.ids = list(pool.map(lambda _: self._submitted(), range(DEAD)))
            list(pool.map(self._killed, self._candidates()))
        assert self.parts.store.counts("deliveries").dead == DEAD

    def _submitted(self) -> str:
        task = a_task(queue="deliveries", handler_ref="deliver", payload=b"x")
        return self.parts.store.submit(task, shards=2).task.id

    def _candidates(self) -> list[Any]:
        now = self.parts.clock.now() + timedelta(seconds=1)
        return [
            c
            for shard in (0, 1)
            for c in self.parts.store.candidates("deliveries", shard, until=now, limit=500).items
        ]

    def _killed(self, candidate: Any) -> None:
        now = self.parts.clock.now()
        claim = self.parts.store.claim(candidate, a_grant(now))
        assert claim is not None
        failure = Failure("task_failed", "Boom", "boom")
        self.parts.store.dead_letter(
            claim, a_failed(claim, now), failure, now=now, fingerprint="v1:a", expires_at=None
        )

    def tasks(self) -> list[Task]:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(self.parts.store.get, self.ids))
        return [task for task in found if task is not None]

    def wait_for(self, condition: Any, what: str) -> None:
        give_up = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < give_up, what
            time.sleep(0.05)

    def job(self) -> Any:
        (job,) = self.rdq.run("job", "list")["items"]
        return job

    def records(self) -> list[tuple[str, str]]:
        items = self.rdq.run("audit", "list", "deliveries")["items"]
        return [
            (each["operation"], each["phase"])
            for each in reversed(items)
            if "dlq" in each["operation"]
        ]

    @contextmanager
    def redrive_at_a_terminal(self) -> Iterator[tuple["subprocess.Popen[bytes]", "Terminal"]]:
        """A redrive by somebody who sits there and says yes. It doesn't outlive the test."""
        terminal = Terminal()
        with subprocess.Popen(
            [RDQ, "dlq", "redrive", "deliveries", "--all", "--rate", "50/s", "--reason", "mended"],
            stdin=terminal.theirs,
            stdout=terminal.theirs,
            stderr=terminal.theirs,
            env=self.environment,
            cwd=HERE,
            start_new_session=True,
        ) as process:
            try:
                yield process, terminal
            finally:
                process.kill()
                terminal.close()


class Terminal:
    """A pseudo terminal, and what was shown on it."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self.shown = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._ours, 4096)
            except OSError:
                return
            if not read:
                return
            self.shown += read

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def close(self) -> None:
        os.close(self.theirs)
        os.close(self._ours)


@pytest.fixture
def field(ministack: Engine) -> Field:
    return Field(ministack)


def killed_half_way(field: Field) -> None:
    """Somebody starts a redrive at a terminal, is asked, sees it move, and then the machine is
    gone.
    """
    with field.redrive_at_a_terminal() as (process, terminal):
        field.wait_for(
            lambda: b"send 200 tasks back to deliveries?" in terminal.shown, "nobody was asked"
        )
        assert field.parts.store.counts("deliveries").dead == DEAD
        terminal.type(b"y\n")
        field.wait_for(
            lambda: field.parts.store.counts("deliveries").dead < DEAD - 60, "nothing was sent back"
        )
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    assert "━".encode() in terminal.shown
    assert b"/200" in terminal.shown


def assert_each_was_sent_back_once(field: Field) -> None:
    tasks = field.tasks()
    assert len(tasks) == DEAD
    assert {task.redrive_count for task in tasks} == {1}
    job = field.job()
    assert (job["state"], job["selected"], job["done"], job["skipped"], job["failed"]) == (
        "done",
        DEAD,
        DEAD,
        0,
        0,
    )
    assert field.records() == [("dlq.redrive", "intent"), ("dlq.redrive", "done")]


def test_a_killed_redrive_goes_on_in_the_sweeps_and_does_nothing_twice(field: Field) -> None:
    killed_half_way(field)
    assert 0 < field.parts.store.counts("deliveries").dead < DEAD
    worker = field.rdq.worker("mended")
    try:
        field.wait_for(
            lambda: all(task.status is Status.SUCCEEDED for task in field.tasks()),
            "the sweeps didn't",
        )
        field.wait_for(lambda: field.job()["state"] == JobState.DONE, "the job never ended")
    finally:
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=60)
    assert json.loads(out)["total"]["completed"] == DEAD
    assert_each_was_sent_back_once(field)


def test_a_killed_redrive_is_resumed_by_hand_and_does_nothing_twice(field: Field) -> None:
    killed_half_way(field)

    done = field.rdq.run("job", "resume", field.job()["job_id"])

    assert (done["done"], done["skipped"]) == (DEAD, 0)
    assert {task.status for task in field.tasks()} == {Status.PENDING}
    assert_each_was_sent_back_once(field)


def test_a_purge_that_two_take_on_at_once_removes_each_once(field: Field) -> None:
    order = Order(operation=Operation.PURGE, selection=Selection(all=True), rate="100/s")
    time.sleep(5)  # what has died in the last five seconds is none of a job's business
    job = JobControl(field.parts).start("deliveries", order, field.parts.auditor(Principal("test")))
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: field.rdq.run("job", "resume", job.id), range(2)))
    assert {each["done"] for each in both} == {DEAD}
    assert field.tasks() == []
    assert field.job()["done"] == DEAD
