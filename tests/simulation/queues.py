"""The configuration of a run's queues, whose budget an owner changes while tasks are under way."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rdq_core.config.effective import effective
from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import StoredQueue
from rdq_core.errors import QueueNotFound
from tests.simulation.plan import Plan

QUEUE: Final = "billing"


class Queues:
    """A `QueueSource` whose settings are what the run says they are at the moment."""

    def __init__(self, plan: Plan, budget: Callable[[], int]) -> None:
        self._budget = budget
        self._each = {most: _settings(plan, most) for most in plan.budgets}

    def settings(self, queue: str, *, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """The settings of the only queue."""
        assert not definition
        if queue != QUEUE:
            raise QueueNotFound(queue)
        return self._each[self._budget()]

    def all(self) -> Mapping[str, QueueSettings]:
        """The only queue."""
        return {QUEUE: self.settings(QUEUE)}

    def for_submits(self, queue: str) -> QueueSettings:
        """The same settings as `settings`."""
        return self.settings(queue)

    def all_stored(self) -> Mapping[str, StoredQueue]:
        """None: the queue is never deleted."""
        return {}


def _settings(plan: Plan, budget: int) -> QueueSettings:
    declared = {
        **plan.queue,
        "retry": {**plan.queue["retry"], "max_attempts": budget},
        "limits": {**plan.queue["limits"], "dead_ttl": plan.dead_ttl},
    }
    if plan.rate_limited:
        declared["dispatch"] = {**declared["dispatch"], "rate_limit": "5/s"}
    return effective(QUEUE, declared, {})
