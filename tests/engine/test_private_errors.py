"""Errors about refused or unreadable values name the field and the size, never the value."""

from collections.abc import Callable
from typing import Final

import pytest
from pydantic import BaseModel

from rdq_core import Registry, task
from rdq_core.errors import InputInvalid, RdqError, StoreFailed
from rdq_core.testing.embedded import Embedded, in_memory
from tests.engine.test_secrets import QUEUE, QUEUES, a_registry
from tests.support.canary import MESSAGE, PAYLOAD, RESULT, SOLD, found_in, told_of


class Order(BaseModel):
    card: int


@task("pays", queue=QUEUE)
def pays(order: Order) -> Order:
    return order


def caused_by(cause: Exception) -> RdqError:
    error = InputInvalid("payload", "is wrong")
    error.__cause__ = cause
    return error


LARGE: Final = PAYLOAD * 100_000
REFUSED: Final[dict[str, Callable[[Embedded], object]]] = {
    "a payload that is too large": lambda local: local.rdq.submit(QUEUE, "succeeds", LARGE),
    "a payload that is no data": lambda local: local.rdq.submit(
        QUEUE, "succeeds", {"card": {PAYLOAD}.pop}
    ),
    "a number that is none": lambda local: local.rdq.submit(
        QUEUE, "succeeds", {"card": [PAYLOAD, float("nan")]}
    ),
    "a header that is no text": lambda local: local.rdq.submit(
        QUEUE,
        "succeeds",
        1,
        headers={"card": [PAYLOAD]},  # type: ignore[dict-item]
    ),
    "a header that is too large": lambda local: local.rdq.submit(
        QUEUE, "succeeds", 1, headers={"card": LARGE}
    ),
    "a reserved header": lambda local: local.rdq.submit(
        QUEUE, "succeeds", 1, headers={"rdq.card": PAYLOAD}
    ),
    "a target that is too long": lambda local: local.rdq.submit(
        QUEUE, "succeeds", 1, target=PAYLOAD * 50
    ),
    "a queue that isn't there": lambda local: local.rdq.submit(
        "biling", "succeeds", PAYLOAD, **SOLD
    ),
    "an id that is elsewhere": lambda local: _twice(local),  # noqa: PLW0108 - it is defined below
    "a payload of another type": lambda local: pays.submit(local.rdq, {"card": PAYLOAD}, **SOLD),  # type: ignore[arg-type]
    "a result of another type": lambda local: _misread(local),  # noqa: PLW0108 - the same
    "a delay that is none": lambda local: local.rdq.submit(
        QUEUE, "succeeds", PAYLOAD, delay="soon", **SOLD
    ),
}


def _twice(local: Embedded) -> None:
    local.configure("email", {})
    receipt = local.rdq.submit(QUEUE, "succeeds", PAYLOAD, **SOLD)
    local.rdq.submit("email", "succeeds", PAYLOAD, id=receipt.id, **SOLD)


def _misread(local: Embedded) -> None:
    @task("pays", queue=QUEUE)
    def paid(order: Order) -> str:
        del order
        return RESULT

    registry = Registry()
    registry.add(paid)
    receipt = paid.submit(local.rdq, Order(card=5))
    local.drain(registry)
    pays.result(local.rdq, receipt.id)


@pytest.mark.parametrize("refused", REFUSED)
def test_no_refusal_repeats_what_is_private(refused: str) -> None:
    local = in_memory(QUEUES)
    with pytest.raises(RdqError) as error:
        REFUSED[refused](local)
    assert found_in(" ".join(told_of(error.value))) == set()


@pytest.mark.parametrize(
    "error",
    [
        InputInvalid("payload", f"{PAYLOAD} is wrong"),
        InputInvalid("payload", "is wrong", hint=f"not {PAYLOAD}"),
        InputInvalid(PAYLOAD, "is wrong"),
        StoreFailed("no answer", may_have_happened=False, task_id=PAYLOAD),
        caused_by(ValueError({"payload": PAYLOAD.encode().hex()})),
    ],
    ids=["message", "hint", "field", "id", "cause"],
)
def test_an_error_that_repeats_it_is_seen(error: RdqError) -> None:
    assert found_in(" ".join(told_of(error))) == {PAYLOAD}


FAILS: Final[dict[str, set[str]]] = {
    "misreads": set(),
    "returns-nonsense": set(),
    "exits": set(),
    "fails": {MESSAGE},
}
"""Handlers, and what a task's history has of the secrets: what an exception says is what it is for.
"""


@pytest.mark.parametrize("ref", FAILS)
def test_a_history_has_what_an_exception_says_and_no_variable_or_input(ref: str) -> None:
    local = in_memory(QUEUES, registry=a_registry())
    receipt = local.rdq.submit(QUEUE, ref, f'{{"card": "{PAYLOAD}"}}', **SOLD)
    local.drain(horizon="1h")
    attempts = local.rdq.get(receipt.id).attempts
    assert attempts
    assert found_in(str(attempts)) == FAILS[ref]
