"""What each verb costs in write units, as ministack bills them by DynamoDB's published rules."""

import pytest

from rdq_core.stores.dynamodb.values import item_size
from tests.dynamodb import verbs
from tests.dynamodb.billing import Bill
from tests.dynamodb.world import FAILURE, World
from tests.support.engines import Engine

pytestmark = pytest.mark.ministack


@pytest.fixture
def world(ministack: Engine) -> World:
    return World(ministack)


BUDGETS: dict[verbs.Prepare, int] = {
    verbs.submit: 2,
    verbs.claim: 3,
    verbs.lost_claim: 1,
    verbs.complete: 2,
    verbs.heartbeat: 3,
    verbs.release: 3,
    verbs.adopt: 3,
    verbs.release_lapsed: 3,
    verbs.reschedule: 4,
    verbs.reclaim: 4,
    verbs.dead_letter: 7,
    verbs.cancel: 2,
    verbs.redrive: 6,
    verbs.purge: 5,
}


@pytest.mark.parametrize("prepare", BUDGETS, ids=verbs.named)
def test_a_verb_costs_what_the_design_allows(world: World, prepare: verbs.Prepare) -> None:
    act = prepare(world)
    bill = Bill(world.client)
    act()
    # ministack bills a failed condition nothing; DynamoDB bills what the write would have cost its
    # table.
    expected = 0 if prepare is verbs.lost_claim else BUDGETS[prepare]
    assert (bill.units, bill.requests) == (expected, bill.requests)


def test_the_hundredth_attempt_costs_what_the_first_does(world: World) -> None:
    claim = world.claimed(payload=b"x" * 300, headers={"traceparent": "00-" + "a" * 52})
    costs = set()
    bill = Bill(world.client)
    for _ in range(100):
        bill.clear()
        world.clock.advance("3s")
        world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
        claim = world.claim()
        costs.add(bill.units)
        assert item_size(world.row()) <= 1024
    assert costs == {7}
