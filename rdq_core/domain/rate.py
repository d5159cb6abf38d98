"""A rate limit as one number: the moment up to which starts have been handed out.

That is the generic cell rate algorithm: each start moves the moment on by one interval, and it may
run ahead of the present by `burst` intervals at most. The moment never goes back, so clocks that
disagree can't hand out the same start twice.
"""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Taken:
    """How many starts were granted, and where the moment is then, in epoch microseconds."""

    granted: int
    moment: int


def take(moment: int, now: int, wanted: int, *, interval: timedelta, burst: int) -> Taken:
    """Grant up to `wanted` starts at `now`. `moment` is as stored, 0 when nothing was; both in
    epoch microseconds.
    """
    step = max(1, interval // timedelta(microseconds=1))
    start = max(moment, now)
    granted = max(0, min(wanted, (now + burst * step - start) // step))
    return Taken(granted, start + granted * step if granted else moment)
