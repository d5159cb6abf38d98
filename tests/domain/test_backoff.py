"""How long a failed task waits."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdq_core.domain.backoff import (
    LATEST,
    BackoffKind,
    BackoffPolicy,
    delay,
    delay_with_floor,
    next_attempt_at,
)
from rdq_core.errors import InputInvalid

SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
NOW = datetime(2026, 7, 20, 14, 3, 22, 117_000, tzinfo=UTC)

spans = st.integers(1, 30 * 86_400_000).map(lambda millis: timedelta(milliseconds=millis))
policies = st.builds(
    BackoffPolicy,
    kind=st.sampled_from(BackoffKind),
    initial=spans,
    maximum=spans,
    multiplier=st.floats(1, 1_000_000),
    jitter=st.floats(0, 1),
)
failure_counts = st.integers(-5, 10**30)
dice = st.floats(-1, 1)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (BackoffKind.FIXED, [2, 2, 2, 2, 2, 2]),
        (BackoffKind.LINEAR, [2, 4, 6, 8, 10, 12]),
        (BackoffKind.EXPONENTIAL, [2, 6, 18, 54, 60, 60]),
    ],
)
def test_the_wait_grows_by_its_kind_up_to_the_cap(kind: BackoffKind, expected: list[int]) -> None:
    policy = BackoffPolicy(kind=kind, initial=2 * SECOND, multiplier=3, maximum=60 * SECOND)
    assert [delay(policy, failures, 0) // SECOND for failures in range(1, 7)] == expected


@pytest.mark.parametrize(("jitter", "seconds"), [(-1, 8), (-0.5, 9), (0, 10), (0.5, 11), (1, 12)])
def test_jitter_spreads_the_wait_both_ways(jitter: float, seconds: int) -> None:
    policy = BackoffPolicy(kind=BackoffKind.FIXED, initial=10 * SECOND, jitter=0.2)
    assert delay(policy, 1, jitter) == seconds * SECOND


def test_tasks_at_the_cap_still_spread_over_the_whole_window() -> None:
    policy = BackoffPolicy(initial=SECOND, maximum=100 * SECOND, jitter=0.2)
    waits = {delay(policy, 50, step / 100) for step in range(-100, 101)}
    assert len(waits) == 201
    assert (min(waits), max(waits)) == (80 * SECOND, 120 * SECOND)


@pytest.mark.parametrize("failures", [10_000, 10**18, 10**400])
@pytest.mark.parametrize("kind", list(BackoffKind))
def test_huge_numbers_of_failures_stay_at_the_cap(kind: BackoffKind, failures: int) -> None:
    policy = BackoffPolicy(
        kind=kind, initial=600 * SECOND, multiplier=1_000_000, maximum=timedelta(days=30)
    )
    expected = policy.initial if kind is BackoffKind.FIXED else policy.maximum
    assert delay(policy, failures, 0) == expected


def test_a_cap_below_the_first_wait_is_the_wait() -> None:
    assert delay(BackoffPolicy(initial=10 * SECOND, maximum=SECOND), 1, 0) == SECOND


def test_fewer_than_one_failure_waits_like_the_first() -> None:
    policy = BackoffPolicy(initial=SECOND)
    assert delay(policy, 0, 0) == delay(policy, -3, 0) == SECOND


@pytest.mark.parametrize(
    ("dice", "like"), [(math.nan, 0), (math.inf, 1), (-math.inf, -1), (7, 1), (-7, -1)]
)
def test_dice_outside_their_range_are_brought_back_into_it(dice: float, like: float) -> None:
    policy = BackoffPolicy(initial=10 * SECOND, jitter=0.5)
    assert delay(policy, 1, dice) == delay(policy, 1, like)


@given(policies, failure_counts, dice)
def test_every_wait_is_whole_milliseconds_inside_the_window(
    policy: BackoffPolicy, failures: int, jitter: float
) -> None:
    wait = delay(policy, failures, jitter)
    assert wait % MILLISECOND == timedelta(0)
    assert timedelta(0) <= wait <= policy.maximum * (1 + policy.jitter) + MILLISECOND


@given(policies, st.integers(1, 200))
def test_the_wait_never_shrinks_as_failures_add_up(policy: BackoffPolicy, failures: int) -> None:
    assert delay(policy, failures, 0) <= delay(policy, failures + 1, 0)


@given(policies, failure_counts, dice, spans)
def test_a_floor_is_never_undercut(
    policy: BackoffPolicy, failures: int, jitter: float, floor: timedelta
) -> None:
    wait = delay_with_floor(policy, failures, jitter, floor)
    assert wait >= floor
    assert wait >= delay(policy, failures, 0)


def test_the_cap_does_not_shorten_a_floor_and_jitter_adds_to_it() -> None:
    policy = BackoffPolicy(initial=SECOND, maximum=10 * SECOND, jitter=0.2)
    waits = [delay_with_floor(policy, 1, jitter, 100 * SECOND) // SECOND for jitter in (-1, 0, 1)]
    assert waits == [120, 100, 120]


@pytest.mark.parametrize("floor", [timedelta.max, timedelta(microseconds=1), timedelta(seconds=-5)])
def test_odd_floors_give_a_wait_all_the_same(floor: timedelta) -> None:
    wait = delay_with_floor(BackoffPolicy(initial=MILLISECOND), 1, 1, floor)
    assert MILLISECOND <= wait <= LATEST - datetime(1, 1, 1, tzinfo=UTC)


def test_the_next_attempt_is_cut_to_milliseconds() -> None:
    assert next_attempt_at(NOW + timedelta(microseconds=999), SECOND) == NOW + SECOND


@pytest.mark.parametrize("wait", [timedelta.max, timedelta(days=3_000_000)])
def test_nothing_is_due_after_the_year_9999(wait: timedelta) -> None:
    assert next_attempt_at(NOW, wait) == LATEST
    assert next_attempt_at(LATEST, SECOND) == LATEST


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("initial_backoff", {"initial": timedelta(0)}),
        ("initial_backoff", {"initial": timedelta(days=31)}),
        ("max_backoff", {"maximum": timedelta(seconds=-1)}),
        ("backoff_multiplier", {"multiplier": 0.5}),
        ("backoff_multiplier", {"multiplier": math.nan}),
        ("backoff_multiplier", {"multiplier": math.inf}),
        ("jitter", {"jitter": 1.1}),
        ("jitter", {"jitter": math.nan}),
        ("jitter", {"jitter": True}),
        ("backoff", {"kind": "quadratic"}),
    ],
)
def test_a_policy_that_makes_no_sense_names_its_field(field: str, given: dict[str, Any]) -> None:
    with pytest.raises(InputInvalid) as refused:
        BackoffPolicy(**given)
    assert refused.value.field == field
