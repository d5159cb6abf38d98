"""Registrations that look right and are not."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from rdq_core import Registry, TaskContext
from rdq_core.errors import ConfigInvalid


def test_a_decorator_without_its_name_is_refused_with_the_line_to_write() -> None:
    decorate: Callable[..., Any] = Registry(queues=["billing"]).handler

    def charge(_: bytes) -> None:
        """What comes for it."""

    with pytest.raises(ConfigInvalid, match="needs a name") as refused:
        decorate(charge)
    assert refused.value.hint == '@registry.handler("charge")'
    assert traceback.format_exception(refused.value)[-1] == '@registry.handler("charge")\n'


def test_one_queue_must_be_in_a_list_too() -> None:
    with pytest.raises(ConfigInvalid, match="list of names") as refused:
        Registry(queues="billing")
    assert refused.value.hint == "Registry(queues=['billing'])"


class Opaque:
    """Nothing that JSON could become."""


def test_an_input_that_no_json_can_become_is_refused_when_it_is_registered() -> None:
    def charge(_: Opaque) -> None:
        """What comes for it."""

    with pytest.raises(ConfigInvalid, match=r"handlers\.charge: Opaque has no JSON form"):
        Registry().register("charge", charge)


@pytest.mark.parametrize("annotation", [int, list[str], "dict[str, int]"])
def test_a_second_parameter_that_cannot_be_the_context_is_refused(annotation: Any) -> None:
    def charge(_: bytes, amount: object) -> None:
        """What comes for it."""

    charge.__annotations__["amount"] = annotation
    with pytest.raises(ConfigInvalid, match="amount is where the TaskContext goes"):
        Registry().register("charge", charge)


@pytest.mark.parametrize("annotation", [TaskContext, object, Any, TaskContext | None])
def test_a_second_parameter_that_can_be_the_context_is_taken(annotation: Any) -> None:
    def charge(_: bytes, given: object) -> None:
        """What comes for it."""

    charge.__annotations__["given"] = annotation
    registry = Registry()
    registry.register("charge", charge)
    assert registry.find("charge") is not None
