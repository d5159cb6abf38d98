"""Storing many new tasks: groups of 25, several groups at a time, each task with its own answer.

    a group   bodies, records, references in batches ─ rows in one insert ─ what it left, by conditional puts

State rows are only ever written on a condition: an insert's is that the key is unused.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rdq_core.domain.lifecycle import not_tried
from rdq_core.domain.task import Task
from rdq_core.engine.ports import Submission
from rdq_core.errors import RdqError, StoreFailed, Unavailable
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.drafting import NewTaskItems, drafted, put_all_before
from rdq_core.stores.dynamodb.inserts import Inserts
from rdq_core.stores.dynamodb.submitting import checked, put_row
from rdq_core.stores.dynamodb.transact import BATCH

AT_ONCE: Final = 8
"""How many groups are under way."""

_STORAGE: Final = (StoreFailed, Unavailable)

Answer = Submission | RdqError
ShardsOf = Callable[[str], int]


class SubmittingMany:
    """The verb of whoever has much work."""

    _access: Access
    _inserts: Inserts

    def submit_many(self, tasks: Sequence[Task], *, shards_of: ShardsOf) -> list[Answer]:
        """See `TaskStore.submit_many`. An id that comes again is submitted again, after all the
        others.
        """
        run = _Run(self._access, self._inserts, shards_of)
        first = {task.id: place for place, task in reversed(list(enumerate(tasks)))}
        places = sorted(first.values())
        groups = [places[start : start + BATCH] for start in range(0, len(places), BATCH)]
        answers: dict[int, Answer] = {}
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rdq-submit") as pool:
            found = pool.map(run.group, [[tasks[place] for place in group] for group in groups])
            for group, of_group in zip(groups, found, strict=True):
                answers.update(zip(group, of_group, strict=True))
        return [
            answers[place] if place in answers else run.group([task])[0]
            for place, task in enumerate(tasks)
        ]


class _Run:
    """One call. After a failure of storage what wasn't under way is not tried any more."""

    def __init__(self, access: Access, inserts: Inserts, shards_of: ShardsOf) -> None:
        self._access = access
        self._inserts = inserts
        self._shards_of = shards_of
        self._storage_failed = threading.Event()

    def group(self, tasks: Sequence[Task]) -> list[Answer]:
        """An answer for each of at most 25 tasks whose ids differ."""
        answers: dict[str, Answer] = {}
        new: list[NewTaskItems] = []
        for task in tasks:
            try:
                new.append(drafted(self._access, task, self._shards_of(task.queue)))
            except RdqError as refused:
                answers[task.id] = refused
        answers |= self._stored(new)
        return [answers[task.id] for task in tasks]

    def _stored(self, new: Sequence[NewTaskItems]) -> dict[str, Answer]:
        if self._storage_failed.is_set():
            return {each.task.id: not_tried(each.task.id) for each in new}
        try:
            put_all_before(self._access, new)
        except _STORAGE as failed:
            self._storage_failed.set()
            return dict.fromkeys((each.task.id for each in new), failed)
        written = self._inserts.insert([each.item for each in new])
        return {
            each.task.id: self._judged(each, written=done)
            for each, done in zip(new, written, strict=True)
        }

    def _judged(self, new: NewTaskItems, *, written: bool) -> Answer:
        if self._storage_failed.is_set() and not written:
            return not_tried(new.task.id)
        try:
            return (
                checked(self._access, new, Submission(new.task, created=True))
                if written
                else put_row(self._access, new)
            )
        except RdqError as error:
            if isinstance(error, _STORAGE):
                self._storage_failed.set()
            return error
