"""Finding due work, leasing it, taking it over from holders whose lease has lapsed, and keeping
overdue work intact.

The index is eventually consistent, so an entry only proposes a task. A claim is one conditional
update of the row, and a claim that loses costs one write unit.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Verb
from rdq_core.domain.limits import LONG_OVERDUE
from rdq_core.domain.task import Status, Task
from rdq_core.domain.times import EPOCH
from rdq_core.engine.ports import KEY_BUSY, Candidate, KeyBusy, Page
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.access import Access, is_token
from rdq_core.stores.dynamodb.ambiguity import SettlingWrite, was_our_write
from rdq_core.stores.dynamodb.concurrency_keys import is_key_held, taking_key
from rdq_core.stores.dynamodb.expressions import (
    BODY_IS_AS_SEEN,
    IS_AS_SEEN,
    IS_DUE,
    IS_HELD_BY_CALLER,
    IS_READABLE,
    IS_WAITING,
    REFERENCES_ARE_AS_SEEN,
    all_of,
    change,
    values_at,
)
from rdq_core.stores.dynamodb.forgetting import unless_forgotten
from rdq_core.stores.dynamodb.history import appended, next_record
from rdq_core.stores.dynamodb.schema import DUE_INDEX, Attr, queue_shard
from rdq_core.stores.dynamodb.sender import ConditionFailed
from rdq_core.stores.dynamodb.state_row import (
    RowClaim,
    StateRow,
    claim_of,
    maybe_row,
    read_inline,
    read_row,
    reader_of,
)
from rdq_core.stores.dynamodb.values import Item, Reader, moment, number, text

CLAIMABLE: Final = (IS_WAITING, IS_DUE, IS_AS_SEEN, IS_READABLE)
"""The condition of a claim."""

_KEY_ROUNDS: Final = 4
_ROW, _KEY = 0, 1
"""The positions of the parts of a keyed claim's transaction."""

_DUE_BY: Final = "#queue_shard = :queue_shard AND #due_at <= :until"


class ClaimVerbs:
    """The verbs of `TaskStore` that a sweep finds and leases work with."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def candidates(
        self, queue: str, shard: int, *, until: datetime, limit: int, after: Any = None
    ) -> Page[Candidate]:
        """See `TaskStore.candidates`. One query of the index, whatever the backlog, and no read of
        a row.
        """
        # Eventually consistent: a global secondary index offers no other read ("Read consistency").
        request: dict[str, Any] = {
            "TableName": self._access.tables.tasks,
            "IndexName": DUE_INDEX,
            "KeyConditionExpression": _DUE_BY,
            "Limit": limit,
        }
        if after is not None:
            request["ExclusiveStartKey"] = after
        values = {":queue_shard": text(queue_shard(queue, shard)), ":until": moment(until)}
        answer = self._access.sender.query(request, values)
        return Page(
            [_candidate(item, queue) for item in answer["Items"]], answer.get("LastEvaluatedKey")
        )

    def claim(self, candidate: Candidate, grant: Grant) -> Claim | None:
        """See `TaskStore.claim`."""
        sets = leased(candidate.fencing_token + 1, grant)
        if candidate.due_at + LONG_OVERDUE <= grant.now:
            # Its body may expire before the attempt ends. Other claims read nothing first.
            row = self._access.state(candidate.task_id)
            if row is not None:
                sets |= extended_for_lease(self._access, row, grant)
        try:
            item = self._access.update_state(
                candidate.task_id,
                change(sets, (Attr.FAILURE,)),
                all_of(*CLAIMABLE),
                {**values_at(grant.now), ":seen_fence": number(candidate.fencing_token)},
            )
        except ConditionFailed as refused:
            if refused.row is None:
                return None
            stored = read_row(refused.row)
            # With our token in the row it was our own claim, and only its answer was lost.
            if stored.token != grant.token:
                return None
        else:
            stored = read_row(item)
        claim = claim_of(stored)
        return unless_forgotten(self._access, claim) if stored.references else claim

    def claim_keyed(self, candidate: Candidate, grant: Grant) -> Claim | KeyBusy | None:
        """See `TaskStore.claim_keyed`. A read and a transaction, and another read if the key has a
        holder.
        """
        row = self._access.state(candidate.task_id)
        if row is None or row.task.concurrency_key is None:
            return None
        seen: Mapping[str, Any] | None = None
        # A further round follows only when the key was freed or taken over in between.
        for _ in range(_KEY_ROUNDS):
            try:
                claim = self._claim_with_key(row, candidate, grant, seen)
                return unless_forgotten(self._access, claim)
            except ConditionFailed as refused:
                # The row counts first: who has the task has its key as well.
                if _ROW in refused.rows:
                    stored = maybe_row(refused.rows[_ROW])
                    if stored is None or stored.token != grant.token:
                        return None
                    return unless_forgotten(self._access, claim_of(stored))
                seen = refused.rows.get(_KEY) or None
                if seen is not None and is_key_held(self._access, seen, row.task):
                    return KEY_BUSY
        return KEY_BUSY

    def _claim_with_key(
        self, row: StateRow, candidate: Candidate, grant: Grant, seen: Mapping[str, Any] | None
    ) -> RowClaim:
        fencing_token = candidate.fencing_token + 1
        sets = leased(fencing_token, grant)
        if candidate.due_at + LONG_OVERDUE <= grant.now:
            sets |= extended_for_lease(self._access, row, grant)
        values = {**values_at(grant.now), ":seen_fence": number(candidate.fencing_token)}
        update = self._access.state_update(
            row.task.id, change(sets, (Attr.FAILURE,)), all_of(*CLAIMABLE), values
        )
        take = taking_key(self._access, row.task, fencing_token, seen)
        self._access.sender.transact([update, take], nonce=self._access.ids.nonce())
        # A transaction returns no items, so the row as it is now is computed.
        after = {**row.item, **sets}
        after.pop(Attr.FAILURE, None)
        return claim_of(read_row(after))

    def lapsed(self, candidate: Candidate, *, now: datetime) -> Claim | None:
        """See `TaskStore.lapsed`."""
        row = self._access.state(candidate.task_id)
        # The index may show the lease from before its last heartbeat; the row has the present end.
        if row is None or row.task.status is not Status.IN_FLIGHT or not row.task.is_due(now):
            return None
        return unless_forgotten(self._access, claim_of(row))

    def load(self, claim: Claim) -> Task:
        """See `TaskStore.load`."""
        row = self._access.held(claim, Verb.CLAIM)
        if row.body_ref is None:
            return replace(claim.task, **read_inline(reader_of(row.item)))
        return replace(claim.task, **self._access.bodies.fields(row))

    def reclaim(self, lapsed: Claim, attempt: Attempt, grant: Grant) -> Claim | None:
        """See `TaskStore.reclaim`."""
        if not is_token(lapsed.token):
            return None
        row = self._access.held(lapsed, Verb.RECLAIM)
        record = next_record(row, attempt, grant.claim_id)
        sets = {**leased(row.fencing_token + 1, grant), **appended(row, record)}
        if lapsed.lease_expires_at + LONG_OVERDUE <= grant.now:
            sets |= extended_for_lease(self._access, row, grant)
        # The record of the lost attempt before the row that makes it history.
        self._access.history.put(row.task.id, record)
        removes = (Attr.FAILURE,) if grant.hands_over else (Attr.FAILURE, Attr.HANDED_OVER)
        try:
            item = self._access.update_state(
                row.task.id,
                change(sets, removes),
                all_of(IS_HELD_BY_CALLER, IS_DUE),
                {**values_at(grant.now), ":token": text(lapsed.token)},
            )
        except ConditionFailed as refused:
            return self._own_reclaim(row, record.key, grant, refused)
        return claim_of(read_row(item))

    def _own_reclaim(
        self, seen: StateRow, record_key: str, grant: Grant, refused: ConditionFailed
    ) -> Claim | None:
        row = maybe_row(refused.row)
        if row is not None and row.token == grant.token:
            return claim_of(row)
        # Even if the reclaim was ours, another host holds or has settled the task since. All that
        # is left is to delete the record unless it was published.
        write = SettlingWrite(
            task_id=seen.task.id,
            life=seen.life,
            claim_id=grant.claim_id,
            verb=Verb.RECLAIM,
            record_key=record_key,
        )
        was_our_write(self._access, write, refused.row)
        return None

    # -- overdue work ------------------------------------------------------------------------------

    def renew(self, candidate: Candidate, *, now: datetime) -> None:
        """See `TaskStore.renew`. A read of the row; two writes a month if its body is outside, and
        two or three more if it has references.
        """
        row = self._access.state(candidate.task_id)
        if row is None or row.due_at is None or row.due_at + LONG_OVERDUE > now:
            return
        if body_end := self._access.bodies.extend_for_run(row, due_at=now, now=now):
            seen = {":seen_body": row.item[Attr.BODY_REF], ":seen_end": row.item[Attr.BODY_ENDS_AT]}
            self._store_end(row, body_end, BODY_IS_AS_SEEN, seen)
        if references_end := self._access.references.extend_for_run(row, due_at=now, now=now):
            seen = {":seen_references_end": row.item[Attr.REFERENCES_END_AT]}
            self._store_end(row, references_end, REFERENCES_ARE_AS_SEEN, seen)

    def _store_end(self, row: StateRow, end: Item, clause: str, seen: Item) -> None:
        # A row that has changed since names another body, or has its new end already.
        with contextlib.suppress(ConditionFailed):
            self._access.update_state(
                row.task.id, change(end), all_of(clause), seen, returning=False
            )


def extended_for_lease(access: Access, row: StateRow, grant: Grant) -> Item:
    """Make what the row points to outlive the lease; the new ends, which the claim has to store."""
    return access.extend_for_run(row, due_at=grant.lease_expires_at, now=grant.now)


def leased(fencing_token: int, grant: Grant) -> Item:
    """The attributes of a row that is held under a grant."""
    item: Item = {
        Attr.STATUS: text(Status.IN_FLIGHT),
        Attr.FENCING_TOKEN: number(fencing_token),
        **held_by(grant),
    }
    if grant.hands_over:
        item[Attr.HANDED_OVER] = number(1)
    return item


def held_by(grant: Grant) -> Item:
    """The attributes of the holder: its token, since when and until when."""
    return {
        Attr.CLAIM_TOKEN: text(grant.token),
        Attr.CLAIMED_AT: moment(grant.now),
        Attr.DUE_AT: moment(grant.lease_expires_at),
    }


def _candidate(item: Mapping[str, Any], queue: str) -> Candidate:
    """The candidate of an index entry. A damaged entry is a candidate too: its claim reads the row
    and reports what is wrong.
    """
    fence = item.get(Attr.FENCING_TOKEN, {}).get("N", "0")
    try:
        due_at = Reader(item, "an index entry").moment(Attr.DUE_AT)
    except CorruptItem:
        due_at = EPOCH
    in_flight = item.get(Attr.STATUS) == text(Status.IN_FLIGHT)
    return Candidate(
        task_id=item[Attr.TASK_ID]["S"],
        queue=queue,
        due_at=due_at,
        status=Status.IN_FLIGHT if in_flight else Status.PENDING,
        fencing_token=int(fence) if fence.isdecimal() else 0,
        handler_ref=item.get(Attr.HANDLER_REF, {}).get("S", ""),
        concurrency_key=item.get(Attr.CONCURRENCY_KEY, {}).get("S"),
    )
