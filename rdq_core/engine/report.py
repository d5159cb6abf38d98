"""What one sweep did, as numbers: for whoever called it, and for its tests."""

import threading
from collections import Counter
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
    """Our write was fenced off, or storage failed: the task is somebody else's now, or will be when
    the lease ends.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """One queue's share. `deferred` counts candidates that were passed over; `contended` those that
    another host took.
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
        mine, theirs = asdict(self), asdict(other)
        return QueueReport(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep did, queue by queue. `left` are queues with work that its host had no time
    for.

    `left_background_work`: so is the next page of some bulk operation.
    """

    queues: Mapping[str, QueueReport] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    left_background_work: bool = False

    @property
    def total(self) -> QueueReport:
        """All queues together."""
        return sum(self.queues.values(), QueueReport())


class Tally:
    """Counts while a sweep is going on, from all of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}

    def add(self, queue: str, name: str, count: int = 1) -> None:
        """Count something that happened to a task of a queue."""
        with self._lock:
            self._counts.setdefault(queue, Counter())[name] += count

    def of(self, name: str) -> int:
        """How often it has happened over all queues."""
        with self._lock:
            return sum(counts[name] for counts in self._counts.values())

    def report(self) -> SweepReport:
        """The counts so far."""
        with self._lock:
            return SweepReport(
                {queue: QueueReport(**counts) for queue, counts in self._counts.items()}
            )
