"""The ops function as a real process, asked by the real command line; and a job that the deployed
sweeper finishes.
"""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rdq_core.client.rdq import parts_of
from rdq_core.domain.task import Failure
from rdq_core.engine.events import Quiet
from rdq_core.runtime.wiring import connect
from rdq_core.testing.clock import FrozenClock
from rdq_core.testing.contract.factories import a_failed, a_grant, a_task
from tests.support.deployed import Deployment
from tests.support.engines import Engine
from tests.support.stores import TABLES

pytestmark = [pytest.mark.ministack, pytest.mark.slow]

RDQ = str(Path(sys.executable).with_name("rdq"))
QUEUE = "billing"


class Clinic(Deployment):
    """A deployment with tasks that have died a minute ago."""

    def fill(self, engine: Engine, number: int) -> None:
        self.configure(QUEUE, index_shards=1, handlers={"charge": {"function": "charge-fn"}})
        parts = parts_of(self.rdq)
        clock = FrozenClock(parts.clock.now() - timedelta(minutes=1))
        store = connect(engine.dynamodb, TABLES, events=Quiet(), clock=clock).store
        for _ in range(number):
            store.submit(a_task(queue=QUEUE, handler_ref="charge"), shards=1)
        for candidate in store.candidates(QUEUE, 0, until=clock.now(), limit=100).items:
            claim = store.claim(candidate, a_grant(clock.now()))
            assert claim is not None
            attempt, failure = a_failed(claim, clock.now()), Failure("task_failed", "Boom", "boom")
            store.dead_letter(
                claim, attempt, failure, now=clock.now(), fingerprint="v1:a", expires_at=None
            )

    def typed(self, engine: Engine, *arguments: str) -> Any:
        environment = {
            **engine.environment,
            "PATH": os.environ["PATH"],
            "NO_PROXY": "127.0.0.1",
            "RDQ_VIA": "rdq-ops",
        }
        done = subprocess.run(
            [RDQ, *arguments, "--json"],
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)


def test_the_command_line_works_through_the_deployed_function_without_knowing_the_tables(
    ministack: Engine,
) -> None:
    clinic = Clinic(ministack)
    clinic.fill(ministack, 3)
    clinic.deploy("rdq-ops", "functions.ops.handler")

    (state,) = clinic.typed(ministack, "status")["items"]
    assert (state["queue"], state["dead"]) == (QUEUE, 3)
    assert clinic.typed(ministack, "dlq", "redrive", QUEUE, "--all", "--yes")["done"] == 3
    assert clinic.typed(ministack, "status")["items"][0]["pending"] == 3


def test_a_job_that_is_left_to_the_sweeps_is_finished_by_the_deployed_sweeper(
    ministack: Engine,
) -> None:
    clinic = Clinic(ministack)
    clinic.fill(ministack, 3)
    clinic.deploy("rdq-ops", "functions.ops.handler")
    clinic.deploy("rdq-sweeper", "functions.sweeper.handler")
    job_id = clinic.typed(ministack, "dlq", "purge", QUEUE, "--all", "--yes", "--detach")["job_id"]
    assert clinic.typed(ministack, "job", "get", job_id)["state"] == "open"

    clinic.invoke("rdq-sweeper", {})

    job = clinic.typed(ministack, "job", "get", job_id)
    assert (job["state"], job["done"]) == ("done", 3)
