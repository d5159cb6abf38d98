"""The DLQ as operators look at it: page by page, by what the tasks died of, one with its whole
history.

The invariant: memory doesn't grow with what is looked through. Nothing here changes anything:
`dead_letter_edits` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.task import Status, Task
from rdq_core.engine.ports import Clock, QueueSource, TaskStore
from rdq_core.errors import TaskNotFound
from rdq_core.ops.cursors import Cursors, check_page_size, query_of
from rdq_core.ops.selection import NO_FILTERS, Filters

LOOKED_THROUGH: Final = 5_000
"""How many entries a page looks through at most for those that meet the conditions."""
NEW_FOR: Final = timedelta(hours=24)
"""How long a group counts as new after its first death."""
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Entries:
    """One page of a DLQ, oldest death first. `next_cursor` is None after the last page; a page
    before may have fewer entries than were asked for, even none. What died after `as_of`, when the
    first page was made, is left out.
    """

    items: tuple[DeadEntry, ...]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Dead tasks of one queue that died of the same bug, as their fingerprint says. The example is
    the newest.

    `is_new`: it was first seen in the last 24 hours, and none of its tasks has been sent back
    before.
    """

    queue: str
    fingerprint: str
    count: int
    first_seen_at: datetime
    last_seen_at: datetime
    example: DeadEntry
    is_new: bool


class DeadLetters:
    """Questions about dead tasks."""

    def __init__(
        self, store: TaskStore, queues: QueueSource, cursors: Cursors, *, clock: Clock
    ) -> None:
        self._store = store
        self._queues = queues
        self._cursors = cursors
        self._clock = clock

    def entries(
        self,
        queue: str,
        filters: Filters = NO_FILTERS,
        *,
        page_size: int = _PAGE,
        cursor: str | None = None,
    ) -> Entries:
        """A page of the queue's DLQ. Raises QueueNotFound, InputInvalid for the size, StaleCursor."""
        self._queues.settings(queue)
        check_page_size(page_size)
        query = query_of("dlq.list", queue, filters.digest())
        place = self._cursors.read(cursor, query=query)
        as_of = self._clock.now() if place is None else place.as_of
        found, handle = self._page(
            queue, filters, page_size, None if place is None else place.handle, as_of
        )
        return Entries(tuple(found), self._cursors.write(handle, query=query, as_of=as_of), as_of)

    def _page(
        self, queue: str, filters: Filters, size: int, handle: Any, as_of: datetime
    ) -> tuple[list[DeadEntry], Any]:
        found: list[DeadEntry] = []
        budget = LOOKED_THROUGH
        while budget > 0 and len(found) < size:
            # Never more than still fit, so that the store's handle stands right behind the last
            # entry returned.
            page = self._store.dead(queue, limit=size - len(found), after=handle)
            budget -= max(len(page.items), 1)
            found += [
                entry for entry in page.items if entry.dead_at <= as_of and filters.admit(entry)
            ]
            handle = page.next
            if handle is None or (page.items and page.items[-1].dead_at > as_of):
                return found, None
        return found, handle

    def groups(self, queue: str | None = None) -> tuple[Group, ...]:
        """The dead tasks by fingerprint, the largest group first; of every queue when none is
        named.
        """
        if queue is not None:
            self._queues.settings(queue)
        found: dict[tuple[str, str], Group] = {}
        new_since = self._clock.now() - NEW_FOR
        for name in self._queues.all() if queue is None else (queue,):
            for entry in entries_of(self._store, name):
                key = (name, entry.fingerprint)
                found[key] = _with(found.get(key), entry, new_since)
        return tuple(
            sorted(found.values(), key=lambda group: (-group.count, group.queue, group.fingerprint))
        )

    def show(self, task_id: str) -> Task:
        """The whole dead task with its history. TaskNotFound when there is none, or when it isn't
        dead.
        """
        task = self._store.get(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id}", task_id=task_id)
        if task.status is not Status.DEAD:
            raise TaskNotFound(
                f"task {task_id} is not in the DLQ: it is {task.status}",
                task_id=task_id,
                hint=f"rdq task get {task_id}",
            )
        return task


def entries_of(store: TaskStore, queue: str) -> Iterator[DeadEntry]:
    """The whole DLQ of a queue, read as it is asked for, oldest death first."""
    handle: Any = None
    while True:
        page = store.dead(queue, limit=_PAGE, after=handle)
        yield from page.items
        handle = page.next
        if handle is None:
            return


def _with(group: Group | None, entry: DeadEntry, new_since: datetime) -> Group:
    is_new = entry.dead_at >= new_since and not entry.redrive_count
    if group is None:
        return Group(
            queue=entry.queue,
            fingerprint=entry.fingerprint,
            count=1,
            first_seen_at=entry.dead_at,
            last_seen_at=entry.dead_at,
            example=entry,
            is_new=is_new,
        )
    return replace(
        group,
        count=group.count + 1,
        first_seen_at=min(group.first_seen_at, entry.dead_at),
        last_seen_at=max(group.last_seen_at, entry.dead_at),
        example=entry if entry.dead_at > group.example.dead_at else group.example,
        is_new=group.is_new and is_new,
    )
