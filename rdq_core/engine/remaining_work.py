"""What a sweep leaves behind when its host's time is over: whether another one has to go on at
once.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from rdq_core.config.settings import Host, QueueSettings
from rdq_core.engine.backlog import is_any_due
from rdq_core.engine.effective_settings import EffectiveSettings
from rdq_core.engine.ports import Clock, ErrorSink, Sleeper, TaskStore
from rdq_core.errors import StoreFailed

_BETWEEN_LOOKS: Final = timedelta(seconds=1)


def is_served(settings: QueueSettings, host: Host) -> bool:
    """Whether this kind of host takes tasks of the queue now."""
    return not settings.paused and settings.host in (host, Host.ANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """Looks for work in the `queues` of a sweep that claims nothing more, in these shards, None: in
    all.

    The invariant: a row of which the kick heard while the sweep was awake is seen here at the
    latest, so it looks for as long as an index entry may follow its stream record.
    """

    store: TaskStore
    effective_settings: EffectiveSettings
    queues: Sequence[str]
    host: Host
    shards: Sequence[int] | None
    clock: Clock
    sleeper: Sleeper
    on_error: ErrorSink

    def left(
        self, *, due_by: datetime, until: datetime, ends_at: datetime | None
    ) -> tuple[str, ...]:
        """The queues with work due by then, as looks up to `until` see it, or up to the host's end."""
        while True:
            found = tuple(queue for queue in self.queues if self._has_work(queue, due_by))
            now = self.clock.now()
            if found or now >= until or (ends_at is not None and now + _BETWEEN_LOOKS >= ends_at):
                return found
            self.sleeper.wait(threading.Event(), _BETWEEN_LOOKS / timedelta(seconds=1))

    def _has_work(self, queue: str, due_by: datetime) -> bool:
        settings = self.effective_settings.of(queue)
        if settings is None or not is_served(settings, self.host):
            return False
        try:
            return is_any_due(self.store, settings, until=due_by, share=self.shards)
        except StoreFailed as failed:  # whoever comes next looks anyway
            self.on_error(failed, where=f"looking for work that is left in queue {queue}")
            return True
