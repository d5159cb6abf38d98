"""Damaged input at every door, and a thrower that notices what it should."""

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdq_core.config.document import document_of
from rdq_core.domain.envelope import from_envelope
from rdq_core.errors import RdqError
from tests.fuzzing import doors, thrower
from tests.fuzzing.doors import DOORS, Door

INPUTS = 400
REFUSE_NOTHING = {
    "a glob", "a reference", "a claim token", "a stream record"
}  # fmt: skip
"""Doors behind which everything is text, or where a refusal is a part of what is tried."""

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("name", DOORS)
def test_damaged_input_is_refused_with_one_clear_error_or_understood(name: str) -> None:
    refused = thrower.throw(name, range(INPUTS))
    assert refused < INPUTS, "nothing gets through, so nothing behind the door was tried"
    assert refused > 0 or name in REFUSE_NOTHING, "what is thrown at it is harmless"


@settings(max_examples=200)
@given(_JSON)
def test_any_data_is_an_envelope_or_refused(data: Any) -> None:
    envelope = {"id": data, **data} if isinstance(data, dict) else {"id": data}
    with contextlib.suppress(RdqError):
        from_envelope(envelope)
    with contextlib.suppress(RdqError):
        document_of(data)


def says(error: BaseException) -> Door:
    def take(_: object) -> None:
        raise error

    return Door(lambda dice: dice.random(), take)


def busy(_: object) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("door", "told"),
    [
        (says(KeyError("x")), "KeyError"),
        (says(RecursionError()), "RecursionError"),
        (says(RdqError("")), "says nothing"),
        (says(RdqError("x" * 5000)), "5000 characters"),
        (Door(random.Random.random, lambda _: bytearray(1 << 40)), "MemoryError"),
        (Door(random.Random.random, busy), "Hangs"),
    ],
    ids=["crash", "recursion", "silence", "flood", "memory", "hang"],
)
def test_the_thrower_notices(monkeypatch: pytest.MonkeyPatch, door: Door, told: str) -> None:
    monkeypatch.setitem(doors.DOORS, "planted", door)
    monkeypatch.setattr(thrower, "_PATIENCE", 0.05)
    with pytest.raises(thrower.Wrong, match=told):
        thrower.throw("planted", range(1))


def test_an_input_is_the_same_each_time_it_is_thrown() -> None:
    for name, door in DOORS.items():
        thrown = [repr(door.throw(random.Random(f"{name}/7"))) for _ in range(2)]
        if not {"token", "torn", "stored", "stream", "cursor"} & set(name.split()):
            assert thrown[0] == thrown[1]
