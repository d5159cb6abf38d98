"""Transactional submit: the state row's write becomes an item of the application's own transaction.

    prepare   body, records, references ──► application   TransactWriteItems [its own items, row, tombstones' checks]

The invariant: the row carries the very condition that a submit has, so a task that is there is
never overwritten, and a repeated transaction is known by the row's life. What was put before goes
by itself if nothing is ever committed.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rdq_core.domain.references import GRACE
from rdq_core.domain.task import Task
from rdq_core.engine.prepared import GOOD_FOR, Explanation, Why
from rdq_core.engine.submit import Receipt
from rdq_core.errors import InputInvalid
from rdq_core.stores.dynamodb.access import Access, values_at
from rdq_core.stores.dynamodb.drafting import NewTaskItems, discard_loser, drafted, put_before
from rdq_core.stores.dynamodb.expressions import (
    HAS_EXPIRED,
    IS_ABSENT,
    IS_NOT_FORGOTTEN_SINCE,
    all_of,
    any_of,
)
from rdq_core.stores.dynamodb.faults import Fault, Kind, understand
from rdq_core.stores.dynamodb.items import StateRow, read_row
from rdq_core.stores.dynamodb.references import tombstone_key
from rdq_core.stores.dynamodb.schema import STATE, Attr
from rdq_core.stores.dynamodb.transact import conditioned
from rdq_core.stores.dynamodb.values import moment, text

_PLAIN = ("Item", "Key", "ExpressionAttributeValues")


class Preparing:
    """The verb of whoever writes something of its own along with the task."""

    _access: Access

    def prepare(self, task: Task, *, shards: int) -> "PreparedSubmit":
        """See `TransactionalStore.prepare`."""
        new = drafted(self._access, task, shards)
        put_before(self._access, new)
        return PreparedSubmit(self._access, new)


class PreparedSubmit:
    """See `Prepared`."""

    def __init__(self, access: Access, new: NewTaskItems) -> None:
        self._access = access
        self._new = new

    def __repr__(self) -> str:
        return f"<prepared submit of task {self.id}>"

    @property
    def id(self) -> str:
        """See `Prepared.id`."""
        return self._new.task.id

    @property
    def receipt(self) -> Receipt:
        """See `Prepared.receipt`."""
        return Receipt(self.id, self._new.task.queue, created=True)

    @property
    def good_until(self) -> datetime:
        """See `Prepared.good_until`."""
        return self._new.now + GOOD_FOR

    @property
    def items(self) -> list[dict[str, Any]]:
        """See `Prepared.items`."""
        if self._access.clock.now() >= self.good_until:
            raise InputInvalid(
                "prepared",
                "is more than five minutes old",
                hint="prepare it again",
                task_id=self.id,
            )
        return [
            {"Put": self._put()},
            *({"ConditionCheck": self._check(digest)} for digest in self._new.digests),
        ]

    @property
    def plain_items(self) -> list[dict[str, Any]]:
        """See `Prepared.plain_items`."""
        return [
            {action: _plain(request) for action, request in item.items()} for item in self.items
        ]

    def _put(self) -> dict[str, Any]:
        put = {"TableName": self._access.tables.tasks, "Item": self._new.item}
        return conditioned(put, any_of(IS_ABSENT, HAS_EXPIRED), values_at(self._new.now))

    def _check(self, digest: str) -> dict[str, Any]:
        check = {"TableName": self._access.tables.control, "Key": tombstone_key(digest)}
        return conditioned(
            check, all_of(IS_NOT_FORGOTTEN_SINCE), {":since": moment(self._new.now - GRACE)}
        )

    # -- afterwards --------------------------------------------------------------------------------

    def explain(self, error: Exception) -> Explanation:
        """See `Prepared.explain`."""
        fault = understand(error)
        if fault.kind is Kind.CONDITION:
            return self._refused(fault)
        if not fault.kind.is_worth_another_try:
            return Explanation(
                Why.OTHER, f"the transaction of task {self.id} was not carried out: {fault.code}"
            )
        row = self._access.state(self.id)
        if row is not None and row.life == self._new.row.life:
            return self._committed()
        return Explanation(
            Why.PASSING,
            f"the transaction of task {self.id} was not carried out so far: {fault.code}; send it again",
        )

    def _refused(self, fault: Fault) -> Explanation:
        for came_back in fault.rows.values():
            if came_back is not None and _is_row(came_back, self.id):
                return self._there(read_row(came_back))
        theirs = tuple(
            place for place, came_back in fault.rows.items() if not self._is_tombstone(came_back)
        )
        if theirs:
            return Explanation(
                Why.YOURS,
                f"a condition of the transaction's own items {theirs} failed, so task {self.id} isn't submitted",
                places=theirs,
            )
        return Explanation(
            Why.FORGOTTEN,
            f"a target or requester of task {self.id} was forgotten since it was prepared",
        )

    def _there(self, stored: StateRow) -> Explanation:
        if stored.life == self._new.row.life:
            return self._committed()
        discard_loser(self._access, self._new)
        queue = stored.task.queue
        if queue != self._new.task.queue:
            return Explanation(Why.CONFLICT, f"task {self.id} exists in queue {queue}")
        receipt = Receipt(self.id, queue, created=False)
        return Explanation(
            Why.ALREADY_SUBMITTED, f"task {self.id} is there already, {stored.task.status}", receipt
        )

    def _committed(self) -> Explanation:
        return Explanation(
            Why.COMMITTED,
            f"the transaction of task {self.id} was carried out; its answer was lost",
            self.receipt,
        )

    def _is_tombstone(self, came_back: Mapping[str, Any] | None) -> bool:
        keys = [tombstone_key(digest) for digest in self._new.digests]
        return (
            came_back is not None
            and {name: came_back.get(name) for name in (Attr.PK, Attr.SK)} in keys
        )


def _is_row(item: Mapping[str, Any], task_id: str) -> bool:
    return item.get(Attr.TASK_ID) == text(task_id) and item.get(Attr.KIND) == text(STATE)


def _plain(request: dict[str, Any]) -> dict[str, Any]:
    # Only who speaks the resource's dialect has it loaded anyway.
    from boto3.dynamodb.types import TypeDeserializer

    deserialize = TypeDeserializer().deserialize
    made: dict[str, dict[str, Any]] = {name: request[name] for name in _PLAIN if name in request}
    plain = {
        name: {key: deserialize(value) for key, value in item.items()}
        for name, item in made.items()
    }
    return {**request, **plain}
