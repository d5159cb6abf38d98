"""The DLQ as operators use it: look, group, send back.

The invariant: nothing is selected by accident, and an entry that died again while a request was under way is left for
the next one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from rdq_core.domain import limits
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lifecycle import NO_EDIT, Edit
from rdq_core.domain.task import Status, Task
from rdq_core.engine.ports import Clock, IdSource, QueueSource, TaskStore
from rdq_core.engine.redrive import Redriver
from rdq_core.errors import CorruptItem, InputInvalid, RdqError, StoreFailed, TaskConflict, TaskNotFound
from rdq_core.ops.cursors import from_cursor, to_cursor
from rdq_core.ops.mutation import Mutation
from rdq_core.ops.selection import NO_FILTERS, Filters, Selection

_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Entries:
    """One page of a DLQ. `next_cursor` is None after the last."""

    items: tuple[DeadEntry, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Dead tasks of one queue that died of the same bug, as their fingerprint says. The example is the newest."""

    queue: str
    fingerprint: str
    count: int
    first_seen_at: datetime
    last_seen_at: datetime
    example: DeadEntry


class DeadLetters:
    """Requests about dead tasks."""

    def __init__(
        self, store: TaskStore, queues: QueueSource, redriver: Redriver, *, clock: Clock, ids: IdSource
    ) -> None:
        self._store = store
        self._queues = queues
        self._redriver = redriver
        self._clock = clock
        self._ids = ids

    # -- looking ------------------------------------------------------------------------------------------------

    def entries(
        self, queue: str, filters: Filters = NO_FILTERS, *, page_size: int = _PAGE, cursor: str | None = None
    ) -> Entries:
        """A page of the queue's DLQ. Raises QueueNotFound, InputInvalid for the size, StaleCursor."""
        self._queues.settings(queue)
        least, most = limits.PAGE_RANGE
        if not least <= page_size <= most:
            raise InputInvalid("page_size", f"is {page_size}; {least} to {most} are allowed")
        handle = from_cursor(cursor, queue=queue, digest=filters.digest())
        found: list[DeadEntry] = []
        while True:
            # Never more than still fit, so that the store's handle stands right behind the last entry returned.
            page = self._store.dead(queue, limit=page_size - len(found), after=handle)
            found += [entry for entry in page.items if filters.admit(entry)]
            handle = page.next
            if handle is None or len(found) >= page_size:
                return Entries(tuple(found), to_cursor(handle, queue=queue, digest=filters.digest()))

    def groups(self, queue: str | None = None) -> tuple[Group, ...]:
        """The dead tasks by fingerprint, the largest group first; of every queue when none is named."""
        if queue is not None:
            self._queues.settings(queue)
        found: dict[tuple[str, str], Group] = {}
        for name in self._queues.all() if queue is None else (queue,):
            for entry in self._all(name):
                key = (name, entry.fingerprint)
                found[key] = _with(found.get(key), entry)
        return tuple(sorted(found.values(), key=lambda group: (-group.count, group.queue, group.fingerprint)))

    def show(self, task_id: str) -> Task:
        """The whole dead task with its history. TaskNotFound when there is none, or when it isn't dead."""
        task = self._existing(task_id)
        if task.status is not Status.DEAD:
            raise TaskNotFound(
                f"task {task_id} is not in the DLQ: it is {task.status}",
                task_id=task_id,
                hint=f"rdq task get {task_id}",
            )
        return task

    # -- sending back -------------------------------------------------------------------------------------------

    def redrive(
        self, queue: str, selection: Selection, edit: Edit = NO_EDIT, *, dry_run: bool = False, force: bool = False
    ) -> Mutation:
        """Send the selected tasks back: due now, with a full budget. `dry_run` counts them and changes nothing.

        Raises QueueNotFound, InputInvalid for an edit that doesn't fit, and TaskNotFound for a group of which none is
        dead.
        """
        self._check_edit(queue, selection, edit)
        op_id = self._ids.task_id()
        tally = Mutation(dry_run=dry_run)
        for chosen in self._selected(queue, selection):
            tally = replace(tally, selected=tally.selected + 1)
            if isinstance(chosen, RdqError):
                tally = tally.refused(chosen)
            elif not dry_run:
                tally = self._redrive_one(chosen, edit, tally, op_id=op_id, force=force)
        if not tally.selected and (group := selection.filters.group) is not None:
            raise TaskNotFound(f"no dead task of {queue} is of group {group}", hint=f"rdq dlq groups {queue}")
        return tally

    def _redrive_one(self, entry: DeadEntry, edit: Edit, tally: Mutation, *, op_id: str, force: bool) -> Mutation:
        try:
            self._redriver.redrive(entry, edit, op_id=op_id, force=force)
        except (TaskConflict, TaskNotFound, StoreFailed, CorruptItem) as refusal:
            return tally.refused(refusal)
        return replace(tally, done=tally.done + 1)

    def _check_edit(self, queue: str, selection: Selection, edit: Edit) -> None:
        settings = self._queues.settings(queue)
        if edit.handler_ref is not None:
            limits.check_name("handler_ref", edit.handler_ref)
        if edit.handler_version is not None:
            limits.check_text("handler_version", edit.handler_version)
            if edit.unpin:
                raise InputInvalid("handler_version", "excludes unpinning: give one of them")
        if edit.payload is not None:
            limits.check_bytes("payload", edit.payload, most=settings.limits.max_payload_size)
            if len(selection.ids) != 1:
                raise InputInvalid("payload", "can be edited for one task id at a time")

    # -- selecting ----------------------------------------------------------------------------------------------

    def _selected(self, queue: str, selection: Selection) -> Iterator[DeadEntry | RdqError]:
        if selection.ids:
            yield from (self._dead(queue, task_id) for task_id in selection.ids)
            return
        cutoff = self._clock.now()
        for entry in self._all(queue):
            if entry.dead_at <= cutoff and selection.filters.admit(entry):
                yield entry

    def _all(self, queue: str) -> Iterator[DeadEntry]:
        handle: Any = None
        while True:
            page = self._store.dead(queue, limit=_PAGE, after=handle)
            yield from page.items
            handle = page.next
            if handle is None:
                return

    def _dead(self, queue: str, task_id: str) -> DeadEntry | RdqError:
        """The entry of an id, or why it has none in this queue."""
        entry = self._store.dead_entry(task_id)
        if entry is not None and entry.queue == queue:
            return entry
        try:
            task = self._existing(task_id)
        except RdqError as missing:
            return missing
        problem = f"is {task.status}, not DEAD" if task.queue == queue else f"is in queue {task.queue}, not {queue}"
        return TaskConflict(f"task {task_id} {problem}", task_id=task_id, hint=f"rdq task get {task_id}")

    def _existing(self, task_id: str) -> Task:
        task = self._store.get(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id}", task_id=task_id)
        return task


def _with(group: Group | None, entry: DeadEntry) -> Group:
    if group is None:
        return Group(
            queue=entry.queue,
            fingerprint=entry.fingerprint,
            count=1,
            first_seen_at=entry.dead_at,
            last_seen_at=entry.dead_at,
            example=entry,
        )
    return replace(
        group,
        count=group.count + 1,
        first_seen_at=min(group.first_seen_at, entry.dead_at),
        last_seen_at=max(group.last_seen_at, entry.dead_at),
        example=entry if entry.dead_at > group.example.dead_at else group.example,
    )
