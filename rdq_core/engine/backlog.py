"""How much of a queue is due, as the index says it: as much of it as is needed to decide whether to
bring help.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from rdq_core.config.settings import QueueSettings
from rdq_core.engine.ports import TaskStore

_PAGE: Final = 100


def is_any_due(
    store: TaskStore,
    settings: QueueSettings,
    *,
    until: datetime,
    share: Sequence[int] | None = None,
) -> bool:
    """Whether anything becomes due by then in these shards, None: in any."""
    shards = range(settings.shards_ever) if share is None else share
    return any(
        store.candidates(settings.queue, shard, until=until, limit=1).items for shard in shards
    )


def count_due(store: TaskStore, settings: QueueSettings, *, now: datetime, most: int) -> int:
    """How much is due now; counting stops at `most`."""
    found = 0
    for shard in range(settings.shards_ever):
        after: Any = None
        while found < most:
            page = store.candidates(
                settings.queue, shard, until=now, limit=min(_PAGE, most), after=after
            )
            found += len(page.items)
            after = page.next
            if after is None:
                break
    return min(found, most)


def shares(shards: int, parties: int) -> list[tuple[int, ...]]:
    """The shards of a queue, each given to one of so many parties; no party goes without."""
    parties = min(shards, parties)
    return [tuple(range(party, shards, parties)) for party in range(parties)]
