"""Queries about the DLQ: pages of entries, groups of equal errors, one task with its history.

The invariant: memory does not grow with the size of the DLQ. Changes are in `dead_letter_edits`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.task import Status, Task
from rdq_core.engine.ports import TaskStore
from rdq_core.errors import TaskNotFound
from rdq_core.ops.cursors import Cursors, check_page_size, query_of
from rdq_core.ops.parts import OperatorParts
from rdq_core.ops.selection import NO_FILTER, DeadLetterFilter

LOOKED_THROUGH: Final = 5_000
"""The most entries that are read to fill one page of matching ones."""
NEW_FOR: Final = timedelta(hours=24)
"""How long a group counts as new after its first death."""
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Entries:
    """One page of a DLQ, oldest death first.

    `next_cursor` is None after the last page; a page before may have fewer entries than were asked
    for, even none. Tasks that died after `as_of`, the time of the first page, are left out.
    """

    items: tuple[DeadEntry, ...]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Dead tasks of one queue with the same fingerprint, so probably of one bug.

    `example` is the newest.
    `is_new`: the first of them died in the last 24 hours, and none has been redriven before.
    """

    queue: str
    fingerprint: str
    count: int
    first_seen_at: datetime
    last_seen_at: datetime
    example: DeadEntry
    is_new: bool


class DeadLetters:
    """Queries about dead tasks."""

    def __init__(self, parts: OperatorParts) -> None:
        self._store = parts.store
        self._queues = parts.queues
        self._cursors = Cursors(parts.cursor_key)
        self._clock = parts.clock

    def entries(
        self,
        queue: str,
        chosen: DeadLetterFilter = NO_FILTER,
        *,
        page_size: int = _PAGE,
        cursor: str | None = None,
    ) -> Entries:
        """A page of the queue's DLQ. QueueNotFound, StaleCursor; InputInvalid for the size."""
        self._queues.settings(queue)
        check_page_size(page_size)
        query = query_of("dlq.list", queue, chosen.digest())
        position = self._cursors.read(cursor, query=query)
        as_of = self._clock.now() if position is None else position.as_of
        after = None if position is None else position.handle
        items, handle = self._page(queue, chosen, page_size, after, as_of)
        return Entries(tuple(items), self._cursors.write(handle, query=query, as_of=as_of), as_of)

    def _page(
        self, queue: str, chosen: DeadLetterFilter, size: int, handle: Any, as_of: datetime
    ) -> tuple[list[DeadEntry], Any]:
        items: list[DeadEntry] = []
        budget = LOOKED_THROUGH
        while budget > 0 and len(items) < size:
            # Never more than still fit, so that the store's handle stands right behind the last
            # entry returned: the next page begins there.
            page = self._store.dead(queue, limit=size - len(items), after=handle)
            budget -= max(len(page.items), 1)
            items += [
                entry for entry in page.items if entry.dead_at <= as_of and chosen.admits(entry)
            ]
            handle = page.next
            if handle is None or (page.items and page.items[-1].dead_at > as_of):
                return items, None
        return items, handle

    def groups(self, queue: str | None = None) -> tuple[Group, ...]:
        """The dead tasks by fingerprint, the largest group first; of every queue when `queue` is
        None. Raises QueueNotFound.
        """
        if queue is not None:
            self._queues.settings(queue)
        groups: dict[tuple[str, str], Group] = {}
        new_since = self._clock.now() - NEW_FOR
        for name in self._queues.all() if queue is None else (queue,):
            for entry in entries_of(self._store, name):
                key = (name, entry.fingerprint)
                groups[key] = _with(groups.get(key), entry, new_since)
        return tuple(
            sorted(
                groups.values(), key=lambda group: (-group.count, group.queue, group.fingerprint)
            )
        )

    def show(self, task_id: str) -> Task:
        """A dead task with its history. Raises TaskNotFound for any other task, and for none."""
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
    """The whole DLQ of a queue, read page by page as it is consumed, oldest death first."""
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
