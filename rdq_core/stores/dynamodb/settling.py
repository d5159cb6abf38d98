"""By the holder of a claim: adopt, heartbeat, complete, reschedule, release.

The invariant: each verb is one write to the state row, on the condition that the caller's token is
the present one. What is put before that write (a record, a result) is invisible until the row names
it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.lease import Claim, Grant, Unreached
from rdq_core.domain.lifecycle import Result, Verb, lost
from rdq_core.domain.task import Failure, Status
from rdq_core.stores.dynamodb.access import Access, is_token
from rdq_core.stores.dynamodb.ambiguity import SettlingWrite, was_our_write
from rdq_core.stores.dynamodb.bodies import AFTER_ROW, ContentItem
from rdq_core.stores.dynamodb.claiming import held_by
from rdq_core.stores.dynamodb.concurrency_keys import free_key
from rdq_core.stores.dynamodb.expressions import (
    IS_DUE,
    IS_EARLIER,
    IS_HANDED_OVER,
    IS_HELD_BY_CALLER,
    all_of,
    change,
    values_at,
)
from rdq_core.stores.dynamodb.history import appended, next_record
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.sender import ConditionFailed
from rdq_core.stores.dynamodb.state_row import (
    StateRow,
    claim_of,
    inline_result,
    maybe_row,
    read_row,
    room_for_result,
    unreached_item,
)
from rdq_core.stores.dynamodb.values import Item, item_size, moment, number, seconds_up, text

_OF_UNREACHED: Final = (Attr.UNREACHED, Attr.UNREACHED_SINCE, Attr.UNADOPTED)
_OF_CLAIM: Final = (Attr.CLAIM_TOKEN, Attr.CLAIMED_AT, Attr.HANDED_OVER)
ENDS_CLAIM: Final = (*_OF_CLAIM, *_OF_UNREACHED)
"""The attributes that a row loses when its claim ends."""
ENDS_TASK: Final = (*ENDS_CLAIM, Attr.DUE_AT)
"""The attributes that it loses when the task ends: without a due time it leaves the due index."""


class SettleVerbs:
    """The verbs of `TaskStore` for the holder of a claim."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def adopt(self, task_id: str, token: str, grant: Grant) -> Claim:
        """See `TaskStore.adopt`."""
        if not is_token(token):
            raise lost(task_id, Verb.ADOPT)
        taken_over = change(held_by(grant), (Attr.HANDED_OVER, *_OF_UNREACHED))
        try:
            item = self._access.update_state(
                task_id, taken_over, all_of(IS_HELD_BY_CALLER), {":token": text(token)}
            )
        except ConditionFailed as refused:
            row = maybe_row(refused.row)
            # With the new token in the row it was our own write, and only its answer was lost.
            if row is None or row.token != grant.token:
                raise lost(task_id, Verb.ADOPT) from None
            return claim_of(row)
        return claim_of(read_row(item))

    def heartbeat(self, claim: Claim, lease_expires_at: datetime) -> None:
        """See `TaskStore.heartbeat`."""
        if not is_token(claim.token):
            raise lost(claim.task.id, Verb.HEARTBEAT)
        due_at = moment(lease_expires_at)
        try:
            self._access.update_state(
                claim.task.id,
                change({Attr.DUE_AT: due_at}),
                all_of(IS_HELD_BY_CALLER, IS_EARLIER),
                {":token": text(claim.token), ":due_at": due_at},
                returning=False,
            )
        except ConditionFailed as refused:
            row = maybe_row(refused.row)
            # With our token in the row, the lease is ours and already ends as late.
            if row is None or row.token != claim.token:
                raise lost(claim.task.id, Verb.HEARTBEAT) from None

    def complete(
        self,
        claim: Claim,
        attempt: Attempt,
        result: Result,
        *,
        now: datetime,
        expires_at: datetime | None,
    ) -> None:
        """See `TaskStore.complete`."""
        row = self._access.held(claim, Verb.COMPLETE)
        sets = {
            **ended(Status.SUCCEEDED, now=now, expires_at=expires_at),
            **marks(claim.claim_id, Verb.COMPLETE),
            Attr.ATTEMPT_COUNT: number(row.task.attempt_count + 1),
            Attr.SUCCESS_STARTED: moment(attempt.started_at),
        }
        if attempt.finished_at is not None:
            sets[Attr.SUCCESS_FINISHED] = moment(attempt.finished_at)
        placed, outside = self._place_result(claim, row, sets, attempt, result, expires_at)
        ends, unending = self._access.extend_for_row(row, expires_at=expires_at, now=now)
        # Before the row that names it. If the row is refused, no reader ever sees it.
        if outside is not None:
            self._access.bodies.put(outside)
        self._settle(
            claim,
            row,
            Verb.COMPLETE,
            {**sets, **placed, **ends},
            (*ENDS_TASK, Attr.FAILURE, *unending),
            result_ref=None if outside is None else outside.ref,
        )

    def reschedule(
        self, claim: Claim, attempt: Attempt, failure: Failure, *, due_at: datetime
    ) -> None:
        """See `TaskStore.reschedule`."""
        row = self._access.held(claim, Verb.RESCHEDULE)
        ends = self._access.extend_for_run(row, due_at=due_at, now=self._access.clock.now())
        # The record before the row: naming its key is what makes it history. If the row is refused,
        # it stays an orphan.
        record = next_record(row, attempt, claim.claim_id)
        self._access.history.put(claim.task.id, record)
        sets = {
            **_waiting(claim.claim_id, Verb.RESCHEDULE, failure, due_at),
            **appended(row, record),
            **ends,
        }
        self._settle(claim, row, Verb.RESCHEDULE, sets, ENDS_CLAIM, record_key=record.key)

    def release(
        self,
        claim: Claim,
        failure: Failure,
        *,
        due_at: datetime,
        unreached: Unreached | None = None,
    ) -> None:
        """See `TaskStore.release`."""
        row = self._access.held(claim, Verb.RELEASE)
        sets = {
            **_waiting(claim.claim_id, Verb.RELEASE, failure, due_at),
            **unreached_item(unreached),
        }
        # A release for any other reason ends a row of times that the function was not reached.
        removes = ENDS_CLAIM if unreached is None else _OF_CLAIM
        self._settle(claim, row, Verb.RELEASE, sets, removes)

    def release_lapsed(
        self,
        lapsed: Claim,
        failure: Failure,
        grant: Grant,
        *,
        due_at: datetime,
        unreached: Unreached,
    ) -> bool:
        """See `TaskStore.release_lapsed`."""
        if not is_token(lapsed.token):
            return False
        sets = {
            **_waiting(grant.claim_id, Verb.RELEASE, failure, due_at),
            **unreached_item(unreached),
        }
        try:
            self._access.update_state(
                lapsed.task.id,
                change(sets, _OF_CLAIM),
                all_of(IS_HELD_BY_CALLER, IS_DUE, IS_HANDED_OVER),
                {**values_at(grant.now), ":token": text(lapsed.token)},
                returning=False,
            )
        except ConditionFailed as refused:
            write = SettlingWrite(
                task_id=lapsed.task.id, life=lapsed.life, claim_id=grant.claim_id, verb=Verb.RELEASE
            )
            if not was_our_write(self._access, write, refused.row):
                return False
        free_key(self._access, lapsed.task, lapsed.fencing_token)
        return True

    def _settle(
        self,
        claim: Claim,
        row: StateRow,
        verb: Verb,
        sets: Item,
        removes: Sequence[Attr],
        *,
        record_key: str | None = None,
        result_ref: str | None = None,
    ) -> None:
        """Write the row on the condition that the claim holds it. Raises LeaseLost."""
        try:
            self._access.update_state(
                claim.task.id,
                change(sets, removes),
                all_of(IS_HELD_BY_CALLER),
                {":token": text(claim.token)},
                returning=False,
            )
        except ConditionFailed as refused:
            write = SettlingWrite(
                task_id=claim.task.id,
                life=row.life,
                claim_id=claim.claim_id,
                verb=verb,
                record_key=record_key,
                result_ref=result_ref,
            )
            if not was_our_write(self._access, write, refused.row):
                raise lost(claim.task.id, verb) from None
        if claim.task.concurrency_key is not None:
            free_key(self._access, claim.task, claim.fencing_token)

    def _place_result(
        self,
        claim: Claim,
        row: StateRow,
        sets: Item,
        attempt: Attempt,
        result: Result,
        expires_at: datetime | None,
    ) -> tuple[Item, ContentItem | None]:
        """The result's attributes in the row, and the item that has it if it does not fit there."""
        inline = inline_result(result, attempt.worker)
        removes = (*ENDS_TASK, Attr.FAILURE)
        settled = {attr: value for attr, value in row.item.items() if attr not in removes} | sets
        # Unknown fields of the attempt have no attribute in the row.
        if not attempt.unknown and item_size(inline) <= room_for_result(settled):
            return inline, None
        ends_at = None if expires_at is None else expires_at + AFTER_ROW
        # Under the claim's name: no other writer puts a result there.
        outside = self._access.bodies.result(
            claim.task.id, claim.claim_id, result, attempt, ends_at, life=row.life
        )
        return {Attr.RESULT_REF: text(outside.ref)}, outside


def marks(claim_id: str, verb: Verb) -> Item:
    """Whose write this is: what `ambiguity` recognises it by when its answer was lost."""
    return {Attr.SETTLED_BY: text(claim_id), Attr.SETTLED_AS: text(verb)}


def ended(status: Status, *, now: datetime, expires_at: datetime | None) -> Item:
    """The attributes of a row whose task has ended. It never expires if `expires_at` is None."""
    item: Item = {Attr.STATUS: text(status), Attr.COMPLETED_AT: moment(now)}
    if expires_at is not None:
        item[Attr.EXPIRES_AT] = number(seconds_up(expires_at))
    return item


def _waiting(claim_id: str, verb: Verb, failure: Failure, due_at: datetime) -> Item:
    return {
        Attr.STATUS: text(Status.PENDING),
        Attr.DUE_AT: moment(due_at),
        Attr.FAILURE: text(failure.code),
        **marks(claim_id, verb),
    }
