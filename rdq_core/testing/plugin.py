"""The pytest plugin: the fixture `local_rdq`, and three fixtures that configure it.

pytest loads it wherever rdq is installed.

    rdq_queues     the queues: a mapping, or the path of a configuration file
    rdq_registry   the handlers that `drain` runs
    rdq_store      "memory" (the default) or "moto", which needs `pip install rdq-core[testing]`

Nothing of rdq is loaded before a test asks for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rdq_core.handlers.registry import Registry
    from rdq_core.testing.embedded import Embedded

# Its modules are not named like test files.
pytest.register_assert_rewrite("rdq_core.testing.contract")


@pytest.fixture
def rdq_queues() -> Any:
    """The queues of `local_rdq`; override it.

    By default there are none: `local_rdq.configure` declares more.
    """
    return {}


@pytest.fixture
def rdq_registry() -> "Registry | None":
    """The handlers of `local_rdq`; override it, or give `drain` a registry."""
    return None


@pytest.fixture
def rdq_store() -> str:
    """Where the tasks of `local_rdq` live; override it, or parametrise it to test on both."""
    return "memory"


@pytest.fixture
def local_rdq(
    rdq_queues: Any, rdq_registry: "Registry | None", rdq_store: str
) -> "Iterator[Embedded]":
    """An empty rdq for one test, whose time stands still until the test moves it."""
    from rdq_core.testing.embedded import embedded, in_memory

    if rdq_store == "memory":
        local = in_memory(rdq_queues, registry=rdq_registry)
        yield local
        local.check_failures_met()
    elif rdq_store == "moto":
        with embedded(rdq_queues, registry=rdq_registry) as local:
            yield local
    else:
        raise pytest.UsageError(f"rdq_store is {rdq_store!r}; there are 'memory' and 'moto'")
