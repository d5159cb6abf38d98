"""The whole ladder of a queue's retries: when each attempt comes, and when a task that always fails
dies.

Offsets count from the submit of a task that is due at once. Attempts are taken to fail in no time;
`dies_at_worst` adds that each one runs into the handler's timeout. Waiting for a sweeper, a limit
or a handler's `RetryAfter` comes on top.
"""

from dataclasses import dataclass
from datetime import timedelta

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.backoff import BackoffPolicy, delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One attempt of a fresh budget and how long after the submit it starts.

    With every wait at its shortest, at its length without jitter, and at its longest.
    """

    attempt: int
    earliest: timedelta
    middle: timedelta
    latest: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Every attempt in order. A task that fails the last one is dead: there is no further wait."""

    rungs: tuple[Rung, ...]
    dies_at_worst: timedelta

    @property
    def last(self) -> Rung:
        """The attempt with which a task dies, and so when it dies when attempts take no time."""
        return self.rungs[-1]


def ladder(settings: QueueSettings) -> Ladder:
    """The ladder of a queue, as an operator sees it before deciding."""
    attempts, policy = settings.retry.max_attempts, settings.retry.policy
    rungs = [Rung(attempt=1, earliest=timedelta(0), middle=timedelta(0), latest=timedelta(0))]
    for failures in range(1, attempts):
        rungs.append(_after(rungs[-1], policy, failures))
    return Ladder(
        rungs=tuple(rungs),
        dies_at_worst=rungs[-1].latest + attempts * settings.execution.handler_timeout,
    )


def _after(rung: Rung, policy: BackoffPolicy, failures: int) -> Rung:
    return Rung(
        attempt=failures + 1,
        earliest=rung.earliest + delay(policy, failures, -1),
        middle=rung.middle + delay(policy, failures, 0),
        latest=rung.latest + delay(policy, failures, 1),
    )
