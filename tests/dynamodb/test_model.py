"""Random lives, told to the store in memory and to DynamoDB's, with faults and time in between:
both stay the same.
"""

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rdq_core.domain.task import Status
from tests.dynamodb.twin_calls import VERBS, likely
from tests.dynamodb.twins import FAULTS, IDS, NO_FAULT, Twins
from tests.support.engines import Engine

EXAMPLES = 40
STEPS = 32
AT_LEAST = 20
TIMES = (*6 * ("0s",), "1s", "3s", "1m", "25h")


def test_both_stores_stay_the_same_whatever_is_done_and_goes_wrong(
    moto: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, counts = moto.dynamodb, Counter[str]()
    monkeypatch.setattr(
        "rdq_core.stores.dynamodb.sender.MAX_SENDS", 2
    )  # who dies has no need of patience

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(st.integers(0, 2**64 - 1))
    def lives(seed: int) -> None:
        dice, twins = Random(seed), Twins(client, counts)
        for _ in range(STEPS):
            step(twins, dice)
        twins.compare(*IDS)
        twins.compare_counts()

    lives()
    wanted = [*VERBS, *FAULTS, *(status for status in Status if status.is_terminal)]
    assert {name: counts[name] for name in wanted if counts[name] < AT_LEAST} == {}


def step(twins: Twins, dice: Random) -> None:
    """One thing happens to one task. Dice choose it: hypothesis likes its examples small, and lives
    end late.
    """
    twins.clock.advance(dice.choice(TIMES))
    task_id = dice.choice(IDS)
    is_odd = dice.randrange(16) == 0
    verb = dice.choice(tuple(VERBS) if is_odd else likely(twins, task_id))
    call = VERBS[verb](twins, task_id, dice.randrange(16))
    twins.make(call, dice.choice((NO_FAULT, *FAULTS)), dice.randint(1, 4))
    if call.verb in ("forget", "submit many"):
        twins.compare(*IDS)
