"""A store whose requests can be disturbed, and the same tables as everybody else sees them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rdq_core.testing.contract.bench import Bench
from rdq_core.testing.faults import FaultScript
from tests.contract.store_calls import Prepare, Ready


@dataclass(frozen=True, slots=True)
class Stage:
    """`bench` works through `client`, which scripts may disturb; `others` through one of their
    own.
    """

    client: Any
    bench: Bench
    others: Bench

    def length(self, call: Prepare) -> int:
        """How many requests it takes, undisturbed."""
        ready = call(self.bench)
        with FaultScript(self.client) as requests:
            ready.call(self.bench.store)
        assert ready.done(self.others.store.get(ready.task_id))
        return requests.count()

    def each_request(self, call: Prepare, *, first: int = 1) -> Iterator[tuple[Ready, int]]:
        """The call made ready anew for each of the requests that it takes, and that request's
        number.
        """
        for k in range(first, self.length(call) + 1):
            yield call(self.bench), k
