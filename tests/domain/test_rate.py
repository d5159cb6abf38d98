from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from rdq_core.domain.rate import take

SECOND = 1_000_000
TENTH = timedelta(milliseconds=100)


def test_a_fresh_bucket_grants_its_burst_and_no_more() -> None:
    assert take(0, SECOND, 50, interval=TENTH, burst=10).granted == 10


def test_an_empty_bucket_fills_at_its_rate() -> None:
    first = take(0, SECOND, 10, interval=TENTH, burst=10)
    assert take(first.moment, SECOND, 1, interval=TENTH, burst=10).granted == 0
    assert take(first.moment, SECOND + 250_000, 9, interval=TENTH, burst=10).granted == 2


def test_a_grant_of_nothing_changes_nothing() -> None:
    assert take(5 * SECOND, SECOND, 1, interval=TENTH, burst=10).moment == 5 * SECOND


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 40), st.sampled_from([0, 2 * SECOND])),
        max_size=40,
    ),
    burst=st.integers(1, 20),
)
def test_no_order_of_requests_gets_more_than_rate_and_burst_even_with_clocks_apart(
    steps: list[tuple[int, int, int]], burst: int
) -> None:
    moment, now, granted, start = 0, 10 * SECOND, 0, 10 * SECOND
    for passed, wanted, skew in steps:
        now += passed
        taken = take(moment, now + skew, wanted, interval=TENTH, burst=burst)
        assert taken.moment >= moment
        moment, granted = taken.moment, granted + taken.granted
    most = (now + 2 * SECOND - start) / 100_000 + burst
    assert granted <= most
