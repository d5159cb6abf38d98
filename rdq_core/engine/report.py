"""What one sweep did, as numbers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum


class Resolution(StrEnum):
    """What was done with a claimed task."""

    COMPLETED = "completed"
    RESCHEDULED = "rescheduled"
    DEAD_LETTERED = "dead_lettered"
    RELEASED = "released"
    HANDED_OVER = "handed_over"
    """A function has the claim, and will adopt and settle it."""
    LOST = "lost"
    """Our write was fenced off, or storage failed: another worker has the task, or will reclaim it
    when the lease ends.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """The numbers of one queue. `deferred` counts candidates that were passed over; `contended`
    those that another host took first.
    """

    claimed: int = 0
    completed: int = 0
    rescheduled: int = 0
    dead_lettered: int = 0
    released: int = 0
    handed_over: int = 0
    lost: int = 0
    deferred: int = 0
    contended: int = 0

    def __add__(self, other: "QueueReport") -> "QueueReport":
        one, two = asdict(self), asdict(other)
        return QueueReport(**{name: one[name] + two[name] for name in one})


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep did, queue by queue.

    `left` are queues with work that the host had no time for; `left_background_work` says the same
    of bulk operations.
    """

    queues: Mapping[str, QueueReport] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    left_background_work: bool = False

    @property
    def total(self) -> QueueReport:
        """All queues together."""
        return sum(self.queues.values(), QueueReport())
