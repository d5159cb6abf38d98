"""Claimants in processes of their own, which share nothing but the tables."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from rdq_core.testing.contract.bench import Bench
from tests.contract.claimant import MOST
from tests.contract.conftest import on_tables
from tests.support.engines import Engine
from tests.support.ministack import ROOT
from tests.support.stores import SHARDS, dynamo_on

PROCESSES = 4


@pytest.fixture
def shared(ministack: Engine) -> Bench:
    bench = on_tables(dynamo_on(ministack))
    bench.shards = SHARDS
    return bench


def a_claimant(engine: Engine, bench: Bench, seed: int) -> "subprocess.Popen[str]":
    """One that has started, and waits for the word."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.claimant", bench.now.isoformat(), str(seed)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **engine.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.ministack
def test_two_hundred_due_tasks_are_each_claimed_once_by_four_processes(
    ministack: Engine, shared: Bench
) -> None:
    ids = {shared.submit().id for _ in range(200)}
    claimants = [a_claimant(ministack, shared, seed) for seed in range(PROCESSES)]

    for claimant in claimants:
        assert claimant.stdin is not None
        claimant.stdin.write("go\n")
        claimant.stdin.flush()
    answers = [claimant.communicate()[0] for claimant in claimants]

    won = [json.loads(answer) for answer in answers]
    assert [claimant.returncode for claimant in claimants] == [0] * PROCESSES
    assert Counter(task_id for each in won for task_id in each) == Counter(ids)
    assert all(0 < len(each) <= MOST for each in won), "nobody can have won it all"
    assert shared.store.counts("billing").in_flight == 200
