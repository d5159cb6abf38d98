from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdq_core.domain.ids import (
    check_id,
    derive_id,
    encode_id,
    first_id,
    id_at,
    last_id,
    shard_of,
    time_of,
)
from rdq_core.errors import InputInvalid
from rdq_core.testing.clock import NOON


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_derived_id_is_always_a_ulid_and_always_the_same(queue: str, key: str) -> None:
    assert check_id(derive_id(queue, key)) == derive_id(queue, key)


def test_derived_ids_never_change_between_releases() -> None:
    assert derive_id("payments.charge", "order 7") == "3TGHPBC341YNZZDKM2KZ4JHTBC"


def test_queue_and_key_do_not_run_into_each_other() -> None:
    assert derive_id("a", "bc") != derive_id("ab", "c")


@given(st.integers(0, 2**128 - 1))
def test_every_number_of_128_bits_is_an_id(number: int) -> None:
    assert len(check_id(encode_id(number))) == 26


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        "8" + "0" * 25,
        "0" * 25,
        "0" * 27,
        "0" * 25 + "U",
        "0" * 25 + "\n",
        5,
        None,
        "\N{LATIN SMALL LETTER DOTLESS I}" * 26,
    ],
)
def test_what_is_no_ulid_is_refused(value: object) -> None:
    with pytest.raises(InputInvalid):
        check_id(value)


def test_ids_spread_evenly_over_the_shards() -> None:
    counts = Counter(
        shard_of(derive_id("q", str(number)), 10, queue="q") for number in range(10_000)
    )
    assert len(counts) == 10
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_tasks_of_one_concurrency_key_share_a_shard() -> None:
    shards = {
        shard_of(derive_id("q", str(n)), 10, queue="q", concurrency_key="k") for n in range(50)
    }
    assert len(shards) == 1


def test_a_ulid_of_a_moment_has_its_time_and_sorts_by_it() -> None:
    before, after = NOON - timedelta(milliseconds=1), NOON + timedelta(milliseconds=1)

    made = id_at(NOON, "chance")

    assert check_id(made) == made
    assert time_of(made) == NOON
    assert last_id(before) < first_id(NOON) <= made <= last_id(NOON) < first_id(after)


def test_a_ulid_can_be_made_to_follow_another_of_the_same_moment() -> None:
    first = last_id(NOON)
    second = id_at(NOON, "chance", after=first)

    assert first < second < id_at(NOON, "chance", after=second)
