"""The schedule of a queue's retries: when each attempt starts, and when a task that always fails is
dead.

Offsets count from the submit of a task that is due at once. Attempts are assumed to fail
immediately; `dies_at_worst` assumes that each one runs into the handler's timeout. Waits for a
sweeper, a limit or a handler's `RetryAfter` are not included.
"""

from dataclasses import dataclass
from datetime import timedelta

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.backoff import BackoffPolicy, delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One attempt of a fresh budget, and how long after the submit it starts.

    `earliest`, `middle` and `latest`: with every wait at its shortest, without jitter, and at its
    longest.
    """

    attempt: int
    earliest: timedelta
    middle: timedelta
    latest: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Every attempt in order. A task that fails the last one is dead at once."""

    rungs: tuple[Rung, ...]
    dies_at_worst: timedelta

    @property
    def last(self) -> Rung:
        """The last attempt: when it starts, a task dies whose attempts fail immediately."""
        return self.rungs[-1]


def ladder(settings: QueueSettings) -> Ladder:
    """The ladder of a queue with these settings."""
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
