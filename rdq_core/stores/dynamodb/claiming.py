"""Finding due work, leasing it, and taking it over from holders whose lease has lapsed.

The index proposes and the row disposes: an entry may be outdated, so a claim is one conditional
update, and one that loses has cost a write unit and nothing else.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Verb
from rdq_core.domain.limits import LONG_OVERDUE
from rdq_core.domain.task import Status, Task
from rdq_core.domain.times import EPOCH
from rdq_core.engine.ports import Candidate, Page
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.access import Access, is_token, values_at
from rdq_core.stores.dynamodb.ambiguity import Settled, was_it_us
from rdq_core.stores.dynamodb.expressions import (
    IS_AS_SEEN,
    IS_DUE,
    IS_HELD_BY_CALLER,
    IS_READABLE,
    IS_WAITING,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.forgetting import unless_forgotten
from rdq_core.stores.dynamodb.items import RowClaim, StateRow, claim_of, maybe_row, read_row
from rdq_core.stores.dynamodb.schema import DUE_INDEX, Attr, queue_shard
from rdq_core.stores.dynamodb.settling import appended, holding, record_of
from rdq_core.stores.dynamodb.transact import ConditionFailed
from rdq_core.stores.dynamodb.values import Item, Reader, Value, moment, number, text

CLAIMABLE: Final = (IS_WAITING, IS_DUE, IS_AS_SEEN, IS_READABLE)
"""What a claim asks of the row."""

_DUE_BY: Final = "#queue_shard = :queue_shard AND #due_at <= :until"


class Claiming:
    """The verbs of whoever looks for work."""

    _access: Access

    def candidates(
        self, queue: str, shard: int, *, until: datetime, limit: int, after: Any = None
    ) -> Page[Candidate]:
        """See `TaskStore.candidates`. One query of the index and no read of a row, whatever the
        backlog.
        """
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
        sets = {**leased(candidate.fencing_token + 1, grant), **self._renewed(candidate, grant)}
        try:
            item = self._access.update_state(
                candidate.task_id,
                change(sets, (Attr.FAILURE,)),
                all_of(*CLAIMABLE),
                {**values_at(grant.now), ":seen_fence": number(candidate.fencing_token)},
            )
        except ConditionFailed as refused:
            return (
                None
                if refused.row is None
                else unless_forgotten(self._access, _own_claim(refused.row, grant))
            )
        return unless_forgotten(self._access, claim_of(read_row(item)))

    def lapsed(self, candidate: Candidate, *, now: datetime) -> Claim | None:
        """See `TaskStore.lapsed`."""
        row = self._access.state(candidate.task_id)
        if row is None or row.task.status is not Status.IN_FLIGHT or not row.task.is_due(now):
            return None
        return unless_forgotten(self._access, claim_of(row))

    def load(self, claim: Claim) -> Task:
        """See `TaskStore.load`."""
        row = self._access.held(claim, Verb.CLAIM)
        return replace(claim.task, **self._access.bodies.fields(row))

    def reclaim(self, lapsed: Claim, attempt: Attempt, grant: Grant) -> Claim | None:
        """See `TaskStore.reclaim`."""
        if not is_token(lapsed.token):
            return None
        row = self._access.held(lapsed, Verb.RECLAIM)
        body = kept(self._access, row, lapsed.lease_expires_at, grant)
        record = record_of(row, attempt, grant.claim_id)
        self._access.history.put(row.task.id, record)
        sets = {**leased(row.fencing_token + 1, grant), **appended(row, record), **body}
        try:
            item = self._access.update_state(
                row.task.id,
                change(
                    sets, (Attr.FAILURE,) if grant.hands_over else (Attr.FAILURE, Attr.HANDED_OVER)
                ),
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
        # Even if it was ours once, somebody holds or settled it since: only the record's fate is
        # left to decide.
        settled = Settled(
            task_id=seen.task.id,
            life=seen.life,
            claim_id=grant.claim_id,
            verb=Verb.RECLAIM,
            record_key=record_key,
        )
        was_it_us(self._access, settled, refused.row)
        return None

    def _renewed(self, candidate: Candidate, grant: Grant) -> Item:
        # In ordinary life a claim reads nothing before it writes.
        if candidate.due_at + LONG_OVERDUE > grant.now:
            return {}
        row = self._access.state(candidate.task_id)
        return {} if row is None else kept(self._access, row, candidate.due_at, grant)


def kept(access: Access, row: StateRow, was_due_at: datetime, grant: Grant) -> Item:
    """Let the body of work that is long overdue live long enough for its run; what the row must
    then remember.
    """
    if was_due_at + LONG_OVERDUE > grant.now:
        return {}
    return access.keep_for_run(row, due_at=grant.lease_expires_at, now=grant.now)


def leased(fencing_token: int, grant: Grant) -> Item:
    """What a row says while it is held under a grant."""
    held = {
        Attr.STATUS: text(Status.IN_FLIGHT),
        Attr.FENCING_TOKEN: number(fencing_token),
        **holding(grant),
    }
    return {**held, Attr.HANDED_OVER: number(1)} if grant.hands_over else held


def _own_claim(came_back: Any, grant: Grant) -> RowClaim | None:
    row = read_row(came_back)
    return claim_of(row) if row.token == grant.token else None


def _candidate(item: dict[str, Value], queue: str) -> Candidate:
    """What an index entry proposes. A damaged one is proposed too: the claim reads the row and says
    what is wrong.
    """
    status = item.get(Attr.STATUS, {}).get("S")
    fence = item.get(Attr.FENCING_TOKEN, {}).get("N", "0")
    return Candidate(
        task_id=item[Attr.TASK_ID]["S"],
        queue=queue,
        due_at=_due_at(item),
        status=Status.IN_FLIGHT if status == Status.IN_FLIGHT else Status.PENDING,
        fencing_token=int(fence) if fence.isdecimal() else 0,
        handler_ref=item.get(Attr.HANDLER_REF, {}).get("S", ""),
        concurrency_key=item.get(Attr.CONCURRENCY_KEY, {}).get("S"),
    )


def _due_at(item: dict[str, Value]) -> datetime:
    try:
        return Reader(item, "an index entry").moment(Attr.DUE_AT)
    except CorruptItem:
        return EPOCH
