"""Registrations that look right and are not."""

from collections.abc import Callable
from typing import Any

import pytest

from rdq_core import Registry
from rdq_core.errors import ConfigInvalid


def test_a_decorator_without_its_name_is_refused_with_the_line_to_write() -> None:
    decorate: Callable[..., Any] = Registry(queues=["billing"]).handler

    def charge(_: bytes) -> None:
        """What comes for it."""

    with pytest.raises(ConfigInvalid, match="needs a name") as refused:
        decorate(charge)
    assert refused.value.hint == '@registry.handler("charge")'


def test_one_queue_must_be_in_a_list_too() -> None:
    with pytest.raises(ConfigInvalid, match="list of names") as refused:
        Registry(queues="billing")
    assert refused.value.hint == "Registry(queues=['billing'])"
