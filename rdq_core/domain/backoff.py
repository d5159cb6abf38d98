"""How long a failed task waits before its next attempt.

Every function here is total: for any policy and number of failures it returns a whole number of
milliseconds that is not negative and doesn't overflow. Randomness is passed in, as a number from -1
to 1.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

from rdq_core.domain.limits import BACKOFF_RANGE
from rdq_core.domain.times import cut_to_millis, span_millis
from rdq_core.errors import InputInvalid

MULTIPLIER_RANGE: Final = (1.0, 1_000_000.0)
JITTER_RANGE: Final = (0.0, 1.0)
LATEST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
"""The last moment that RFC 3339 can express. Nothing is due later."""

_MOST_FAILURES: Final = 2**32  # in milliseconds that is beyond every cap, and it still fits a float
_LATEST_DELAY: Final = span_millis(LATEST - datetime(1, 1, 1, tzinfo=UTC))


class BackoffKind(StrEnum):
    """How the wait grows with the number of failures."""

    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffPolicy:
    """A wait that grows from `initial` to at most `maximum`, each one spread by up to `jitter` of
    itself either way.

    `multiplier` applies to exponential growth alone. Raises InputInvalid naming the field of a
    value out of range, so every existing policy can be computed with.
    """

    kind: BackoffKind = BackoffKind.EXPONENTIAL
    initial: timedelta = timedelta(seconds=1)
    multiplier: float = 2.0
    maximum: timedelta = timedelta(minutes=10)
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in tuple(BackoffKind):
            raise InputInvalid("backoff", f"{self.kind!r} is not one of {', '.join(BackoffKind)}")
        object.__setattr__(self, "kind", BackoffKind(self.kind))
        _check_span("initial_backoff", self.initial)
        _check_span("max_backoff", self.maximum)
        _check_number("backoff_multiplier", self.multiplier, MULTIPLIER_RANGE)
        _check_number("jitter", self.jitter, JITTER_RANGE)


def _check_span(field: str, span: timedelta) -> None:
    least, most = BACKOFF_RANGE
    if not least <= span <= most:
        raise InputInvalid(field, f"is {span}; 1 millisecond to {most.days} days are allowed")


def _check_number(field: str, number: float, allowed: tuple[float, float]) -> None:
    least, most = allowed
    # Written so that NaN, which compares false with everything, is refused.
    if isinstance(number, bool) or not least <= number <= most:
        raise InputInvalid(field, f"is {number}; {least:g} to {most:g} is allowed")


def delay(policy: BackoffPolicy, failures: int, jitter: float) -> timedelta:
    """The wait after the `failures`-th failure of the present budget, counted from 1.

    `jitter` selects it from the policy's window: -1 the shortest wait, 0 the middle, 1 the longest;
    NaN counts as 0. The cap is applied before the jitter, so that tasks at the cap don't fall due
    together: a wait may exceed `maximum` by the jitter's share.
    """
    return _milliseconds(_capped(policy, failures) * (1 + policy.jitter * _within_one(jitter)))


def delay_with_floor(
    policy: BackoffPolicy, failures: int, jitter: float, floor: timedelta
) -> timedelta:
    """The wait when the handler asked for at least `floor`, as `RetryAfter` does.

    Never shorter than the floor, whatever `maximum` says, and never shorter than the policy's own
    wait without jitter: here jitter only adds, by its size alone.
    """
    least = max(_capped(policy, failures), _whole_millis_up(floor))
    spread = policy.jitter * abs(_within_one(jitter))
    return max(
        _milliseconds(least * (1 + spread)), timedelta(milliseconds=min(least, _LATEST_DELAY))
    )


def next_attempt_at(now: datetime, wait: timedelta) -> datetime:
    """`now` and the wait, cut to milliseconds; at most the last millisecond of the year 9999."""
    start = cut_to_millis(now)
    return LATEST if wait > LATEST - start else cut_to_millis(start + wait)


def _capped(policy: BackoffPolicy, failures: int) -> float:
    initial, maximum = span_millis(policy.initial), span_millis(policy.maximum)
    counted = max(1, min(failures, _MOST_FAILURES))
    return min(initial * _growth(policy, counted, maximum / initial), maximum)


def _growth(policy: BackoffPolicy, failures: int, enough: float) -> float:
    """The factor on the initial wait. It stops growing at `enough`, where the cap applies."""
    match policy.kind:
        case BackoffKind.FIXED:
            return 1
        case BackoffKind.LINEAR:
            return failures
        case BackoffKind.EXPONENTIAL:
            return _power(policy.multiplier, failures - 1, enough)
        case _:
            assert_never(policy.kind)


def _power(multiplier: float, exponent: int, enough: float) -> float:
    # Compared as logarithms, because the power itself may be beyond any float.
    if exponent * math.log(multiplier) > math.log(max(enough, 1.0)) + 1:
        return enough
    return multiplier**exponent


def _within_one(jitter: float) -> float:
    return 0.0 if math.isnan(jitter) else max(-1.0, min(1.0, jitter))


def _milliseconds(wait: float) -> timedelta:
    return timedelta(milliseconds=max(0, min(round(wait), _LATEST_DELAY)))


def _whole_millis_up(floor: timedelta) -> int:
    whole, rest = divmod(floor, timedelta(milliseconds=1))
    return max(0, whole + (1 if rest else 0))
