"""Shortened ids: the last or first letters of an id, enough to identify one task.

The invariant: letters that could mean two tasks are refused.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from rdq_core.domain.ids import ALPHABET
from rdq_core.errors import InputInvalid, TaskNotFound
from rdq_core.ops.dead_letters import LOOKED_THROUGH, entries_of
from rdq_core.ops.parts import OperatorParts

WHOLE: Final = 26
FEWEST: Final = 4
_PAGE: Final = 100
_AHEAD: Final = timedelta(days=400)


def is_short(text: str) -> bool:
    """Whether this can be the end or the beginning of an id, and not a whole one."""
    return FEWEST <= len(text) < WHOLE and all(letter in ALPHABET for letter in text.upper())


def is_meant(short: str, whole: str) -> bool:
    """Whether the shortened id matches this one."""
    return whole.endswith(short.upper()) or whole.startswith(short.upper())


class ShortIds:
    """Finds the task of a shortened id among the dead, waiting and running tasks."""

    def __init__(self, parts: OperatorParts) -> None:
        self._store = parts.store
        self._queues = parts.queues
        self._clock = parts.clock

    def find(self, short: str, queue: str | None = None) -> str:
        """The id of the one task that matches, in `queue` or, when that is None, in any queue.

        Reads at most 10,000 tasks of each queue. Raises TaskNotFound when no id matches,
        InputInvalid when several do or when `short` can't be a part of an id.
        """
        if not is_short(short):
            raise InputInvalid(
                "id", f"give at least {FEWEST} letters, the last or the first of the id"
            )
        queues = [queue] if queue is not None else sorted(self._queues.all())
        matching = {
            task_id for name in queues for task_id in self._ids(name) if is_meant(short, task_id)
        }
        if not matching:
            raise TaskNotFound(
                f"no task that waits, runs or is dead has an id like {short}",
                hint="give the whole id",
            )
        if len(matching) > 1:
            raise InputInvalid(
                "id", f"{short} can mean {len(matching)} tasks", hint="give more of its letters"
            )
        return matching.pop()

    def _ids(self, queue: str) -> Iterator[str]:
        yield from (
            entry.task_id for entry in islice(entries_of(self._store, queue), LOOKED_THROUGH)
        )
        yield from islice(self._live(queue), LOOKED_THROUGH)

    def _live(self, queue: str) -> Iterator[str]:
        until = self._clock.now() + _AHEAD
        for shard in range(self._queues.settings(queue).shards_ever):
            handle: Any = None
            while True:
                page = self._store.candidates(queue, shard, until=until, limit=_PAGE, after=handle)
                yield from (candidate.task_id for candidate in page.items)
                handle = page.next
                if handle is None:
                    break
