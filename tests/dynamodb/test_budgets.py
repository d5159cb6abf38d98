"""The budgets of `benchmarks/cost.py`: every step within its own, and flat in history, payload and
backlog.
"""

from typing import Any

import pytest

from benchmarks.backlog import sweep_of
from benchmarks.capacity import Meter
from benchmarks.cost import CARRY_THE_BODY, grown, over_budget
from benchmarks.designs import OBVIOUS_TABLE, Obvious, real_stack
from benchmarks.steps import BUDGETS, Bench, live, obvious_life, payload_of
from rdq_core.stores.dynamodb.values import Item
from tests.support.engines import Engine

STACK = real_stack(1)


@pytest.fixture
def bench(moto: Engine) -> Bench:
    return Bench(moto.dynamodb)


def test_every_step_keeps_its_budget_and_costs_the_same_after_many_failures(bench: Bench) -> None:
    first = bench.steps(payload_of(300), STACK)
    first["submit with a failure"] = bench.submit_with_a_failure(payload_of(300), STACK)
    later = {**first, **bench.steps(payload_of(300), STACK, earlier_attempts=30)}
    assert (set(first), over_budget(first), grown(first, later)) == (set(BUDGETS), [], [])


def test_a_step_over_its_budget_is_told(bench: Bench) -> None:
    large = {"submit": bench.steps(payload_of(2000), STACK)["submit"]}
    assert over_budget(large) == ["submit costs 5 write units; 2 are its budget"]


def test_a_large_payload_is_paid_for_once(bench: Bench) -> None:
    life = bench.life(payload_of(100 * 1024), 1, STACK)
    assert life.writes is not None
    assert life.writes < 120
    steps = bench.steps(payload_of(100 * 1024), STACK)
    assert (
        over_budget({name: bill for name, bill in steps.items() if name not in CARRY_THE_BODY})
        == []
    )


def test_a_first_try_success_costs_7_and_each_failure_before_it_7_more(bench: Bench) -> None:
    lives = [bench.life(payload_of(300), attempts, STACK).writes for attempts in (1, 2, 5)]
    # The second claim takes nothing more although the first one's failure is on record by then.
    assert lives == [7, 14, 35]


def test_an_idle_poll_costs_half_a_read_unit_a_shard(bench: Bench) -> None:
    bill = bench.poll()
    assert (bill.writes, bill.reads) == (0, 0.5)


def test_the_obvious_design_costs_on_paper_what_its_requests_would(moto: Engine) -> None:
    client: Any = moto.dynamodb
    client.create_table(**OBVIOUS_TABLE)

    def write(_before: Item | None, after: Item) -> None:
        client.put_item(TableName=OBVIOUS_TABLE["TableName"], Item=after)

    with Meter(client) as meter:
        live(Obvious(write), payload_of(3000), 4, STACK)
    assert meter.write_units == obvious_life(payload_of(3000), 4, STACK).writes


def test_the_obvious_design_takes_8_and_6_more_for_each_failure() -> None:
    assert [obvious_life(payload_of(10), attempts, "").writes for attempts in (1, 2, 3)] == [
        8,
        14,
        20,
    ]


def test_a_sweep_takes_the_same_requests_whatever_is_due_behind(moto: Engine) -> None:
    client = moto.dynamodb
    few = sweep_of(client, 1_000)
    many = sweep_of(client, 20_000)
    assert (many.requests, many.entries_read) == (few.requests, few.entries_read)
    assert few.requests["update_item"] == 200
