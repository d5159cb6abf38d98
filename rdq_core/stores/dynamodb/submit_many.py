"""Storing many new tasks: groups of 25, several groups at a time, with an answer for each task.

    a group   bodies, records, references in batches
              └► rows in one BatchExecuteStatement
                 └► rows that it did not surely write, by conditional puts

The invariant: state rows are only ever written on a condition. PartiQL's INSERT has one built in:
it writes an item only when its key is unused ("PartiQL insert statements for DynamoDB").
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rdq_core.domain.lifecycle import not_tried
from rdq_core.domain.task import Task
from rdq_core.engine.ports import Submission
from rdq_core.errors import RdqError, StoreFailed, Unavailable
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.request_failures import FailureKind, understand
from rdq_core.stores.dynamodb.sender import BATCH, Sender
from rdq_core.stores.dynamodb.submitting import (
    NewTaskItems,
    check_not_forgotten,
    draft,
    put_row,
)
from rdq_core.stores.dynamodb.values import Item

AT_ONCE: Final = 8
"""How many groups are sent at the same time."""

_STORAGE: Final = (StoreFailed, Unavailable)

Answer = Submission | RdqError
ShardsOf = Callable[[str], int]


class SubmitManyVerbs:
    """`submit_many` of `TaskStore`."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._inserts = BatchInserts(access.sender, access.tables.tasks)

    def submit_many(self, tasks: Sequence[Task], *, shards_of: ShardsOf) -> list[Answer]:
        """See `TaskStore.submit_many`. A repeated id is submitted again after all others."""
        call = _SubmitManyCall(self._access, self._inserts, shards_of)
        first = {task.id: position for position, task in reversed(list(enumerate(tasks)))}
        positions = sorted(first.values())
        groups = [positions[start : start + BATCH] for start in range(0, len(positions), BATCH)]
        answers: dict[int, Answer] = {}
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rdq-submit") as pool:
            results = pool.map(call.submit, [[tasks[each] for each in group] for group in groups])
            for group, of_group in zip(groups, results, strict=True):
                answers.update(zip(group, of_group, strict=True))
        return [
            answers[position] if position in answers else call.submit([task])[0]
            for position, task in enumerate(tasks)
        ]


class _SubmitManyCall:
    """One call. Once storage has failed, groups that have not begun are not tried."""

    def __init__(self, access: Access, inserts: "BatchInserts", shards_of: ShardsOf) -> None:
        self._access = access
        self._inserts = inserts
        self._shards_of = shards_of
        self._storage_failed = threading.Event()

    def submit(self, tasks: Sequence[Task]) -> list[Answer]:
        """An answer for each of at most 25 tasks, whose ids differ."""
        answers: dict[str, Answer] = {}
        new: list[NewTaskItems] = []
        for task in tasks:
            try:
                new.append(draft(self._access, task, self._shards_of(task.queue)))
            except RdqError as refused:
                answers[task.id] = refused
        answers |= self._store(new)
        return [answers[task.id] for task in tasks]

    def _store(self, new: Sequence[NewTaskItems]) -> dict[str, Answer]:
        if self._storage_failed.is_set():
            return {each.task.id: not_tried(each.task.id) for each in new}
        try:
            put_all_prerequisites(self._access, new)
        except _STORAGE as failed:
            self._storage_failed.set()
            return dict.fromkeys((each.task.id for each in new), failed)
        inserted = self._inserts.insert([each.item for each in new])
        return {
            each.task.id: self._answer(each, inserted=done)
            for each, done in zip(new, inserted, strict=True)
        }

    def _answer(self, new: NewTaskItems, *, inserted: bool) -> Answer:
        # What was surely inserted is stored, whatever has failed since.
        if self._storage_failed.is_set() and not inserted:
            return not_tried(new.task.id)
        try:
            if not inserted:
                return put_row(self._access, new)
            if new.digests:
                check_not_forgotten(self._access, new)
            return Submission(new.task, created=True)
        except RdqError as error:
            if isinstance(error, _STORAGE):
                self._storage_failed.set()
            return error


def put_all_prerequisites(access: Access, new: Sequence[NewTaskItems]) -> None:
    """Store what the rows of many new tasks will name, in batches."""
    access.bodies.put_all([each.body for each in new if each.body is not None])
    access.history.put_all([(each.task.id, record) for each in new for record in each.records])
    access.references.put([item for each in new for item in each.references])


# -- 25 rows in a request --------------------------------------------------------------------------

_BROKEN_ANSWERS: Final = 3
"""After this number of broken answers, and no good one, the engine counts as unable."""
_INCONCLUSIVE: Final = frozenset(
    {FailureKind.BROKEN, FailureKind.CONFLICT, FailureKind.THROTTLED, FailureKind.NOT_SENT}
)


class BatchInserts:
    """Inserts rows, 25 per request, where the engine and the role allow it.

    Nothing depends on the answer: a row that was not surely inserted is put on a condition, which
    recognises our own row. So an engine without PartiQL, a missing permission and a lost answer
    cost time only. The first rows of a process find out whether inserts work.
    """

    def __init__(self, sender: Sender, table: str) -> None:
        self._sender = sender
        self._table = table
        self._finding_out = threading.Lock()
        self._works: bool | None = None
        self._broken = 0

    def insert(self, items: Sequence[Item]) -> list[bool]:
        """Which of the items, whose keys differ, were surely inserted."""
        if self._works is None:
            with self._finding_out:
                return self._insert(items)
        return self._insert(items)

    def _insert(self, items: Sequence[Item]) -> list[bool]:
        none = [False] * len(items)
        if self._works is False:
            return none
        try:
            answers = self._sender.execute_once([_statement(self._table, item) for item in items])
        # an engine in this process that imitates DynamoDB fails in ways of its own
        except Exception as error:  # noqa: BLE001
            self._note_failure(understand(error).kind)
            return none
        self._works = True
        # Not what DynamoDB answers: the conditional puts find out what was stored.
        if len(answers) != len(items):
            return none
        return ["Error" not in answer for answer in answers]

    def _note_failure(self, kind: FailureKind) -> None:
        if self._works is None:
            self._broken += kind is FailureKind.BROKEN
            if kind not in _INCONCLUSIVE or self._broken >= _BROKEN_ANSWERS:
                self._works = False


def _statement(table: str, item: Mapping[str, Any]) -> dict[str, Any]:
    # Attribute names are constants without quotes, and every value is a parameter: nothing has to
    # be escaped.
    names = ", ".join(f"'{name}': ?" for name in item)
    return {
        "Statement": f'INSERT INTO "{table}" VALUE {{{names}}}',
        "Parameters": list(item.values()),
    }
