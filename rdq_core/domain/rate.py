"""A rate limit as one number: the moment up to which starts have been granted.

This is the generic cell rate algorithm: each start advances the moment by one interval, and it may
be ahead of the present by at most `burst` intervals. The moment never goes back, so clocks that
disagree can't grant the same start twice.
"""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Taken:
    """The number of starts granted, and the moment afterwards, in epoch microseconds."""

    granted: int
    moment: int


def take(moment: int, now: int, wanted: int, *, interval: timedelta, burst: int) -> Taken:
    """Grant up to `wanted` starts. `now` and `moment`, the stored one or 0, are epoch
    microseconds.
    """
    step = max(1, interval // timedelta(microseconds=1))
    start = max(moment, now)
    granted = max(0, min(wanted, (now + burst * step - start) // step))
    return Taken(granted, start + granted * step if granted else moment)
