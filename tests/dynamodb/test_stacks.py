"""Stacks are stored small, and come back as they were."""

import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.designs import an_error, real_stack
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.times import EPOCH
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb import stacks
from rdq_core.stores.dynamodb.history import Record, read_record, record_item
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.values import Item, item_size


def stored(stack: str) -> Item:
    attempt = Attempt(
        attempt_no=12,
        started_at=EPOCH,
        finished_at=EPOCH,
        outcome=Outcome.RETRYABLE_FAILURE,
        error=an_error(stack),
        worker="lambda:rdq-sweeper/7f3c1a52-0b9e-4c55-9d0e-2f6f6f0d2c11",
        fencing_token=1_784_548_800_001,
    )
    return record_item(
        "0" * 26, Record("A#12#" + "f" * 16, "A#11#" + "f" * 16, "n" * 12, attempt), now=EPOCH
    )


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_real_stack_of_some_kilobytes_makes_a_record_of_one_write_unit(refusals: int) -> None:
    stack = real_stack(refusals)
    assert len(stack) > 2000 * refusals
    assert item_size(stored(stack)) <= 1024


@given(st.text(max_size=3000))
@example("\N{SNOWMAN}" * 5000)
@example(stacks._PHRASES.decode())
def test_every_stack_comes_back_as_it_was(stack: str) -> None:
    error = read_record(stored(stack)).attempt.error
    assert error is not None
    assert error.stack == stack


@pytest.mark.parametrize("damage", [b"", b"not zlib", stacks.compressed(b"x" * 600)[:-5]])
def test_a_stack_that_was_damaged_is_told(damage: bytes) -> None:
    item = {**stored("x" * 600), Attr.ERROR_STACK: {"B": damage}}
    with pytest.raises(CorruptItem, match="decompressed"):
        read_record(item)


def test_a_stack_stored_with_phrases_of_a_newer_rdq_is_told() -> None:
    with pytest.raises(CorruptItem, match="decompressed"):
        read_record({**stored("x" * 600), Attr.ENCODING: {"S": "es9"}})


def test_the_phrases_never_change_because_stored_stacks_are_read_with_them() -> None:
    assert (stacks.ENCODING, hashlib.sha256(stacks._PHRASES).hexdigest()[:16]) == (
        "es1",
        "bbac00f225616624",
    )
