"""Runs work at its due times, with a clock that jumps from one to the next.

A worker polls every second; a test that did so would poll 600,000 times in a week without work.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from rdq_core.engine.ports import QueueSource, TaskStore
from rdq_core.engine.report import QueueReport, SweepReport
from rdq_core.engine.sweep import Sweeper, SweepLimits
from rdq_core.errors import StoreFailed
from rdq_core.testing.clock import FrozenClock

_NOW_ONLY: Final = SweepLimits(horizon=timedelta(0), linger=timedelta(0))
_SOON: Final = timedelta(seconds=1)
_PAGE: Final = 100


class Drain:
    """Sweeps these queues repeatedly. Paused queues are skipped, as by any host."""

    def __init__(
        self,
        sweeper: Sweeper,
        store: TaskStore,
        source: QueueSource,
        clock: FrozenClock,
        queues: Sequence[str],
    ) -> None:
        self._sweeper = sweeper
        self._store = store
        self._source = source
        self._clock = clock
        self._queues = queues
        self._patience = _SOON

    def run(self, until: datetime) -> SweepReport:
        """Run what is due, then what becomes due by `until`, moving the clock to each due time."""
        report = self._sweeper.sweep(_NOW_ONLY)
        while (moment := self._next(until)) is not None:
            self._clock.advance(moment - self._clock.now())
            swept = self._sweeper.sweep(_NOW_ONLY)
            if swept.total.claimed:
                self._patience = _SOON
            report = _both(report, swept)
        return report

    def _next(self, until: datetime) -> datetime | None:
        """The next time at which there may be work; None when that is after `until`."""
        now = self._clock.now()
        due = list(self._due(until))
        moments = [moment for moment in due if moment > now]
        if len(moments) < len(due):
            # A due task was passed over: no rate limit token was left, or its key was in use. Look
            # again later, with growing intervals.
            moments.append(now + self._patience)
            self._patience *= 2
        return min((moment for moment in moments if moment <= until), default=None)

    def _due(self, until: datetime) -> Iterator[datetime]:
        for queue in self._queues:
            settings = self._source.settings(queue)
            for shard in range(0 if settings.paused else settings.shards_ever):
                yield from self._due_in(queue, shard, until)

    def _due_in(self, queue: str, shard: int, until: datetime) -> Iterator[datetime]:
        try:
            page = self._store.candidates(queue, shard, until=until, limit=_PAGE)
        except StoreFailed:  # there may be due work; the sweep has reported the error
            yield self._clock.now()
            return
        yield from (candidate.due_at for candidate in page.items)


def _both(one: SweepReport, other: SweepReport) -> SweepReport:
    queues = dict.fromkeys((*one.queues, *other.queues))
    nothing = QueueReport()
    return SweepReport(
        {
            queue: one.queues.get(queue, nothing) + other.queues.get(queue, nothing)
            for queue in queues
        }
    )
