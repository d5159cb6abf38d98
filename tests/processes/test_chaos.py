"""Four workers, killed and stopped for longer than their leases as long as there is work: every
promise is kept.

The harm keeps step with the work, not with the clock: a slow machine takes longer and sees the
same. `make chaos` has 2,000 tasks, which keep sixteen handlers busy for two minutes; CHAOS_TASKS
and CHAOS_SEED change that.
"""

import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from rdq_core import NewTask, Receipt
from rdq_core.client.rdq import Rdq
from rdq_core.domain.attempt import Outcome
from rdq_core.domain.task import Status, Task
from rdq_core.engine.events import Quiet
from rdq_core.runtime.wiring import Parts, connect
from tests.processes.commands import TABLES, Commands
from tests.processes.crew import Crew
from tests.processes.receiver import Effect, FencedReceiver
from tests.support.engines import Engine

pytestmark = [pytest.mark.processes, pytest.mark.ministack]

TASKS: Final = int(os.environ.get("CHAOS_TASKS", "200"))
SEED: Final = os.environ.get("CHAOS_SEED", "1")
PATIENCE: Final = 300.0 + TASKS
"""Seconds after which nobody believes any more that the work will end: ten times what it takes."""
AT_ONCE: Final = 12
BETWEEN_HARMS: Final = (6, 18)
QUEUES: Final = b"""
config_version: 1
queues:
  chaos:
    retry: {max_attempts: 100, initial_backoff: 100ms, max_backoff: 1s}
    execution: {lease: 2s, handler_timeout: 20s}
    dispatch: {concurrency: 4, poll_interval: 500ms}
    index_shards: 2
"""


class Flow:
    """Tasks that come as others are done: behind a backlog nobody would reclaim what a stopped
    worker holds.
    """

    def __init__(self, rdq: Rdq) -> None:
        self._rdq = rdq
        self.ids: list[str] = []

    @property
    def has_ended(self) -> bool:
        return len(self.ids) == TASKS

    def go_on(self) -> None:
        """Submit some more, if there are any."""
        numbers = range(len(self.ids), min(len(self.ids) + AT_ONCE, TASKS))
        answers = self._rdq.submit_many(NewTask("chaos", "work", number) for number in numbers)
        self.ids.extend(answer.id for answer in answers if isinstance(answer, Receipt))
        assert len(self.ids) == numbers.stop


def in_chaos(
    flow: Flow, crew: Crew, parts: Parts, receiver: FencedReceiver, dice: random.Random
) -> None:
    """Harm somebody after every few effects, until all tasks have come to an end."""
    give_up, next_harm = time.monotonic() + PATIENCE, 1
    while (counts := parts.store.counts("chaos")).pending or counts.in_flight or not flow.has_ended:
        assert time.monotonic() < give_up, f"{counts} after {PATIENCE:.0f} s"
        if counts.pending < AT_ONCE:
            flow.go_on()
        effects = receiver.effects
        if len(effects) >= next_harm:
            crew.harm(effects[-1].worker)
            next_harm = len(effects) + dice.randint(*BETWEEN_HARMS)
        crew.tend()
        time.sleep(0.1)


def test_whatever_happens_to_workers_nothing_is_lost_and_no_stale_claim_has_an_effect(
    ministack: Engine,
) -> None:
    dice, parts = random.Random(SEED), connect(ministack.dynamodb, TABLES, events=Quiet())
    with FencedReceiver() as receiver:
        rdq = Commands(ministack, RECEIVER=receiver.url)
        rdq.run("init")
        rdq.run("queue", "apply", "-", given=QUEUES)
        flow = Flow(Rdq(parts=parts))
        with Crew(lambda: rdq.worker("fragile"), dice) as crew:
            in_chaos(flow, crew, parts, receiver, dice)
        effects = receiver.effects
    with ThreadPoolExecutor(8) as pool:
        tasks = [task for task in pool.map(parts.store.get, flow.ids) if task is not None]

    assert_nothing_is_lost(flow.ids, tasks, effects)
    repeats = sum(len(task.attempts) - 1 for task in tasks)
    refused = sum(effect.was_refused for effect in effects)
    assert min(crew.killed, crew.stopped, repeats) >= 1
    sys.stdout.write(
        f"{TASKS} tasks, {len(effects)} effects, {repeats} attempts that weren't the last; "
    )
    sys.stdout.write(f"{crew.killed} workers killed, {crew.stopped} stopped, ")
    sys.stdout.write(f"{refused} effects refused as stale\n")


def assert_nothing_is_lost(
    ids: Sequence[str], tasks: Sequence[Task], effects: Sequence[Effect]
) -> None:
    assert [task.id for task in tasks] == ids
    by_task: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_task[effect.task_id].append(effect)
    assert by_task.keys() == set(ids)
    for task in tasks:
        assert_one_end(task)
        assert_effects_are_attempts(task, by_task[task.id])


def assert_one_end(task: Task) -> None:
    outcomes = [attempt.outcome for attempt in task.attempts]
    assert task.status is Status.SUCCEEDED
    assert outcomes.count(Outcome.SUCCESS) == 1
    assert outcomes[-1] is Outcome.SUCCESS
    assert [attempt.attempt_no for attempt in task.attempts] == list(range(1, len(outcomes) + 1))


def assert_effects_are_attempts(task: Task, effects: Sequence[Effect]) -> None:
    """Each is one attempt on record, and was refused when a later attempt had come before: the last
    never is.
    """
    made = [(effect.attempt_no, effect.fence) for effect in effects]
    on_record = [(attempt.attempt_no, attempt.fencing_token) for attempt in task.attempts]
    assert len(set(made)) == len(made)
    assert set(made) <= set(on_record)
    for place, effect in enumerate(effects):
        assert effect.was_refused == any(
            earlier.attempt_no > effect.attempt_no for earlier in effects[:place]
        )
    assert on_record[-1] in {
        (effect.attempt_no, effect.fence) for effect in effects if not effect.was_refused
    }
