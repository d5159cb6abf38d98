import contextlib
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.lease import Claim
from rdq_core.domain.task import Status
from rdq_core.engine.ports import KEY_BUSY, KeyBusy
from rdq_core.errors import LeaseLost
from rdq_core.testing.contract.bench import LEASE, Bench
from rdq_core.testing.contract.factories import a_grant
from rdq_core.testing.contract.keys import WAYS_OUT, claim_keyed, held
from rdq_core.testing.faults import FaultScript
from tests.contract.conftest import on_tables
from tests.support.engines import Engine
from tests.support.stores import dynamo_on


@pytest.fixture
def keyed(moto: Engine) -> tuple[Bench, FaultScript]:
    client = moto.dynamodb
    bench = on_tables(dynamo_on(moto), client)
    return bench, FaultScript(client)


@pytest.mark.parametrize("way", sorted(WAYS_OUT))
def test_a_key_that_could_not_be_freed_costs_the_next_claimant_a_read_and_nothing_else(
    keyed: tuple[Bench, FaultScript], way: str
) -> None:
    bench, faults = keyed
    claim = held(bench)
    with faults:
        faults.lose_request("DeleteItem", times=None)
        WAYS_OUT[way](bench, claim)
    held(bench)


def test_an_answer_to_a_keyed_claim_that_was_lost_is_recognised_as_ours(
    keyed: tuple[Bench, FaultScript],
) -> None:
    bench, faults = keyed
    task_id = bench.submit(concurrency_key="ann").id
    with faults:
        faults.lose_answer("TransactWriteItems")
        assert isinstance(claim_keyed(bench, task_id), Claim)


def test_a_late_clean_up_does_not_free_the_key_of_a_claim_that_came_after(
    keyed: tuple[Bench, FaultScript],
) -> None:
    bench, faults = keyed
    first = held(bench)
    taken: list[object] = []

    def meanwhile() -> None:
        taken.append(claim_keyed(bench, first.task.id))

    with faults:
        faults.interleave(meanwhile, "DeleteItem", at=1, when="before")
        bench.release(first)
    assert isinstance(taken[0], Claim)
    assert claim_keyed(bench, bench.submit(concurrency_key="ann").id) is KEY_BUSY


def test_two_claimants_who_both_find_a_leaked_key_do_not_both_take_it(
    keyed: tuple[Bench, FaultScript],
) -> None:
    bench, faults = keyed
    first = held(bench)
    with faults:
        faults.lose_request("DeleteItem", times=None)
        bench.complete(first)
    one, other = (bench.submit(concurrency_key="ann").id for _ in range(2))
    outcomes: list[object] = []
    with faults:
        faults.interleave(
            lambda: outcomes.append(claim_keyed(bench, other)), "TransactWriteItems", at=2
        )
        outcomes.append(claim_keyed(bench, one))
    assert sorted(isinstance(outcome, Claim) for outcome in outcomes) == [False, True]


def test_a_keyed_claim_that_finds_its_key_busy_writes_nothing(
    keyed: tuple[Bench, FaultScript],
) -> None:
    bench, faults = keyed
    held(bench)
    second = bench.submit(concurrency_key="ann").id
    with faults:
        assert claim_keyed(bench, second) is KEY_BUSY
        assert faults.count("GetItem") <= 2
        assert faults.count("TransactWriteItems") == 1


class RandomLife:
    """Random steps on tasks of two keys, and what must hold after each."""

    def __init__(self, bench: Bench, faults: FaultScript, seed: int) -> None:
        self.bench = bench
        self.stored: Callable[[str], Any] = bench.raw
        self.faults = faults
        self.dice = random.Random(seed)
        self.tasks: list[str] = []
        self.claims: dict[str, Claim] = {}

    def step(self) -> None:
        often = (self.claim, self.settle)
        steps: list[Callable[[], None]] = [
            *often,
            *often,
            self.submit,
            self.lapse,
            self.cancel,
            self.redrive,
            self.wait,
        ]
        with self.faults:
            if self.dice.random() < 0.2:
                self.faults.lose_request("DeleteItem", times=None)
            self.dice.choice(steps)()
        self.check()

    def submit(self) -> None:
        if len(self.tasks) < 12:
            self.tasks.append(
                self.bench.submit(concurrency_key=self.dice.choice(["ann", "bob"])).id
            )

    def claim(self) -> None:
        for candidate in self.bench.candidates():
            if candidate.status is Status.PENDING:
                claim = self.bench.store.claim_keyed(candidate, a_grant(self.bench.now))
                if isinstance(claim, Claim):
                    self.claims[candidate.task_id] = claim
                return

    def settle(self) -> None:
        if self.claims:
            task_id = self.dice.choice(sorted(self.claims))
            claim = self.claims.pop(task_id)
            way = self.dice.choice(["complete", "reschedule", "dead-letter", "release"])
            with contextlib.suppress(
                LeaseLost
            ):  # cancelled or reclaimed: the holder has nothing to say any more
                WAYS_OUT[way](self.bench, claim)

    def lapse(self) -> None:
        for candidate in self.bench.candidates():
            lapsed = self.bench.store.lapsed(candidate, now=self.bench.now)
            if lapsed is not None:
                self.bench.dead_letter_lapsed(lapsed)
                return

    def cancel(self) -> None:
        live = [
            task_id for task_id in self.tasks if not self.bench.task(task_id).status.is_terminal
        ]
        if live and self.dice.random() < 0.3:
            self.bench.cancel(self.dice.choice(live))

    def redrive(self) -> None:
        entries = self.bench.dead_entries()
        if entries:
            self.bench.redrive_entry(self.dice.choice(entries))

    def wait(self) -> None:
        self.bench.clock.advance(
            self.dice.choice([timedelta(seconds=1), LEASE, timedelta(hours=1)])
        )

    def check(self) -> None:
        rows = [items["T"] for items in map(self.stored, self.tasks) if "T" in items]
        in_flight = [
            row["concurrency_key"]["S"] for row in rows if row["status"]["S"] == "IN_FLIGHT"
        ]
        assert len(in_flight) == len(set(in_flight)), f"two holders of one key: {in_flight}"

    def nothing_is_held_for_good(self) -> None:
        for task in map(self.bench.store.get, self.tasks):
            if task is not None and not task.status.is_terminal:
                self.bench.cancel(task.id)
        for key in ("ann", "bob"):
            outcome = claim_keyed(self.bench, self.bench.submit(concurrency_key=key).id)
            assert not isinstance(outcome, KeyBusy)


@pytest.mark.parametrize("seed", range(4))
def test_over_random_steps_a_key_never_has_two_holders_and_is_never_lost(
    keyed: tuple[Bench, FaultScript], seed: int
) -> None:
    life = RandomLife(*keyed, seed)
    for _ in range(130):
        life.step()
    life.nothing_is_held_for_good()
