"""How much of a queue is due, as its index shows it: to start helpers, and a successor."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.config.settings import Host, QueueSettings
from rdq_core.engine.effective_settings import EffectiveSettings, is_served
from rdq_core.engine.ports import Clock, ErrorSink, Sleeper, TaskStore
from rdq_core.errors import StoreFailed

_PAGE: Final = 100
_BETWEEN_LOOKS: Final = timedelta(seconds=1)


def count_due(store: TaskStore, settings: QueueSettings, *, now: datetime, most: int) -> int:
    """The number of tasks due now; counting stops at `most`. Raises StoreFailed."""
    count = 0
    # Shards that the queue no longer uses may still hold tasks.
    for shard in range(settings.shards_ever):
        after: Any = None
        while count < most:
            page = store.candidates(
                settings.queue, shard, until=now, limit=min(_PAGE, most), after=after
            )
            count += len(page.items)
            after = page.next
            if after is None:
                break
    return min(count, most)


def shares(shards: int, parties: int) -> list[tuple[int, ...]]:
    """The shards of a queue, divided among at most `parties`; none of them gets an empty share."""
    parties = min(shards, parties)
    return [tuple(range(party, shards, parties)) for party in range(parties)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """Looks for due work in the `queues` of a sweep that has ended, in these `shards`, None in all.

    The invariant: a row whose kick started nothing, because this sweep was announced as present, is
    seen here at the latest. So it looks for as long as an index entry may lag its stream record.
    """

    store: TaskStore
    effective_settings: EffectiveSettings
    queues: Sequence[str]
    host: Host
    shards: Sequence[int] | None
    clock: Clock
    sleeper: Sleeper
    on_error: ErrorSink

    def find(
        self, *, due_by: datetime, until: datetime, ends_at: datetime | None
    ) -> tuple[str, ...]:
        """The queues with work due by `due_by`. Looks each second up to `until`, or to the end of
        the host's time, and returns as soon as there are any.
        """
        while True:
            queues = tuple(queue for queue in self.queues if self._has_work(queue, due_by))
            now = self.clock.now()
            if queues or now >= until or (ends_at is not None and now + _BETWEEN_LOOKS >= ends_at):
                return queues
            self.sleeper.wait(threading.Event(), _BETWEEN_LOOKS / timedelta(seconds=1))

    def _has_work(self, queue: str, due_by: datetime) -> bool:
        settings = self.effective_settings.of(queue)
        if settings is None or not is_served(settings, self.host):
            return False
        shards = range(settings.shards_ever) if self.shards is None else self.shards
        try:
            return any(
                self.store.candidates(queue, shard, until=due_by, limit=1).items for shard in shards
            )
        except StoreFailed as failed:
            # Reported as work: a successor that finds nothing costs less than a task that waits.
            self.on_error(failed, where=f"looking for remaining work in queue {queue}")
            return True
