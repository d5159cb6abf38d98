"""Transactional submit: the write of the state row becomes an item of the application's own
transaction.

    prepare   body, records, references
       └► application   TransactWriteItems [its own items, row, check of each tombstone]

The invariant: the row carries the condition of a submit, so an existing task is never overwritten,
and a repeated transaction is recognised by the row's life. What was put before expires by TTL if
nothing is ever committed.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rdq_core.domain.references import GRACE
from rdq_core.domain.task import Task
from rdq_core.engine.prepared import GOOD_FOR, Explanation, Why
from rdq_core.engine.submit import Receipt
from rdq_core.errors import InputInvalid
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.expressions import (
    HAS_EXPIRED,
    IS_ABSENT,
    IS_NOT_FORGOTTEN_SINCE,
    all_of,
    any_of,
    values_at,
)
from rdq_core.stores.dynamodb.references import tombstone_key
from rdq_core.stores.dynamodb.request_failures import FailureKind, RequestFailure, understand
from rdq_core.stores.dynamodb.schema import STATE, Attr
from rdq_core.stores.dynamodb.sender import conditioned
from rdq_core.stores.dynamodb.state_row import StateRow, read_row
from rdq_core.stores.dynamodb.submitting import (
    NewTaskItems,
    discard_prerequisites,
    draft,
    put_prerequisites,
)
from rdq_core.stores.dynamodb.values import moment, text

_WITH_VALUES = ("Item", "Key", "ExpressionAttributeValues")
"""The parts of a request that hold low-level values."""


class PrepareVerbs:
    """`prepare` of `TransactionalStore`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def prepare(self, task: Task, *, shards: int) -> "PreparedSubmit":
        """See `TransactionalStore.prepare`."""
        new = draft(self._access, task, shards)
        put_prerequisites(self._access, new)
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
        # A queue that is being deleted waits for longer than that before it looks for tasks.
        return self._new.task.created_at + GOOD_FOR

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
        return conditioned(
            put, any_of(IS_ABSENT, HAS_EXPIRED), values_at(self._new.task.created_at)
        )

    def _check(self, digest: str) -> dict[str, Any]:
        check = {"TableName": self._access.tables.control, "Key": tombstone_key(digest)}
        # Clocks may be apart by GRACE: a forget that seems slightly older counts as well.
        since = {":since": moment(self._new.task.created_at - GRACE)}
        return conditioned(check, all_of(IS_NOT_FORGOTTEN_SINCE), since)

    # -- after the transaction ---------------------------------------------------------------------

    def explain(self, error: Exception) -> Explanation:
        """See `Prepared.explain`."""
        failure = understand(error)
        if failure.kind is FailureKind.CONDITION:
            return self._explain_refusal(failure)
        if not failure.kind.is_transient:
            return Explanation(
                Why.OTHER, f"the transaction of task {self.id} was not carried out: {failure.code}"
            )
        row = self._access.state(self.id)
        # No other submit has this life, so the row says what the lost answer would have said.
        if row is not None and row.life == self._new.life:
            return self._committed()
        return Explanation(
            Why.PASSING,
            f"the transaction of task {self.id} was not carried out so far: {failure.code};"
            " send it again",
        )

    def _explain_refusal(self, failure: RequestFailure) -> Explanation:
        for refused in failure.rows.values():
            if refused is not None and _is_row(refused, self.id):
                return self._explain_existing(read_row(refused))
        own = tuple(
            position for position, item in failure.rows.items() if not self._is_tombstone(item)
        )
        if own:
            return Explanation(
                Why.YOURS,
                f"a condition of the transaction's own items {own} failed,"
                f" so task {self.id} isn't submitted",
                positions=own,
            )
        return Explanation(
            Why.FORGOTTEN,
            f"a target or requester of task {self.id} was forgotten since it was prepared",
        )

    def _explain_existing(self, stored: StateRow) -> Explanation:
        if stored.life == self._new.life:
            return self._committed()
        discard_prerequisites(self._access, self._new)
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

    def _is_tombstone(self, item: Mapping[str, Any] | None) -> bool:
        keys = [tombstone_key(digest) for digest in self._new.digests]
        return item is not None and {name: item.get(name) for name in (Attr.PK, Attr.SK)} in keys


def _is_row(item: Mapping[str, Any], task_id: str) -> bool:
    return item.get(Attr.TASK_ID) == text(task_id) and item.get(Attr.KIND) == text(STATE)


def _plain(request: dict[str, Any]) -> dict[str, Any]:
    # Applications that use boto3's resource layer have this module loaded; others need not load it.
    from boto3.dynamodb.types import TypeDeserializer

    deserialize = TypeDeserializer().deserialize
    typed: dict[str, dict[str, Any]] = {
        name: request[name] for name in _WITH_VALUES if name in request
    }
    plain = {
        name: {key: deserialize(value) for key, value in item.items()}
        for name, item in typed.items()
    }
    return {**request, **plain}
