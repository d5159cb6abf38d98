"""Random lives, told to the store in memory and to DynamoDB's, with faults and time in between: both stay the same."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rdq_core.domain.task import Status
from tests.dynamodb.twins import FAULTS, IDS, NO_FAULT, VERBS, Twins, likely
from tests.support.engines import Engine

EXAMPLES = 40
STEPS = 30
AT_LEAST = 20
TIMES = ("0s", "0s", "0s", "1s", "3s", "1m", "25h")


def test_both_stores_stay_the_same_whatever_is_done_and_goes_wrong(
    moto: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, counts = moto.dynamodb, Counter[str]()
    monkeypatch.setattr("rdq_core.stores.dynamodb.transact.MAX_TRIES", 2)  # who dies has no need of patience

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(st.data())
    def lives(data: st.DataObject) -> None:
        twins = Twins(client, counts)
        for _ in range(STEPS):
            step(twins, data)
        twins.compare(*IDS)
        twins.compare_counts()

    lives()
    wanted = [*VERBS, *FAULTS, *(status for status in Status if status.is_terminal)]
    assert {name: counts[name] for name in wanted if counts[name] < AT_LEAST} == {}


def step(twins: Twins, data: st.DataObject) -> None:
    """One thing happens to one task."""
    twins.clock.advance(data.draw(st.sampled_from(TIMES), "time"))
    task_id = data.draw(st.sampled_from(IDS), "task")
    odd = data.draw(st.integers(0, 9), "odd") == 9
    verb = data.draw(st.sampled_from(tuple(VERBS) if odd else likely(twins, task_id)), "verb")
    call = VERBS[verb](twins, task_id, data.draw(st.integers(0, 15), "variant"))
    fault = data.draw(st.sampled_from((NO_FAULT, *FAULTS)), "fault")
    twins.make(call, fault, data.draw(st.integers(1, 4), "at"))
    if call.verb in ("forget", "submit many"):
        twins.compare(*IDS)
