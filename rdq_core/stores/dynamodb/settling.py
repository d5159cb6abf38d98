"""By the holder of a claim: adopt, heartbeat, complete, reschedule, dead-letter, release.

The invariant: each is one write to the state row (or one transaction with it) on the condition that
the caller's token is the present one. What goes before that write is seen by nobody until it
succeeds.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.lease import Claim, Grant, Unreached
from rdq_core.domain.lifecycle import Result, Verb, lost
from rdq_core.domain.task import Failure, Status
from rdq_core.stores.dynamodb import contents
from rdq_core.stores.dynamodb.access import Access, is_token, values_at
from rdq_core.stores.dynamodb.ambiguity import Settled, was_it_us
from rdq_core.stores.dynamodb.bodies import AFTER_ROW, Outside
from rdq_core.stores.dynamodb.expressions import (
    IS_DUE,
    IS_EARLIER,
    IS_HANDED_OVER,
    IS_HELD_BY_CALLER,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.items import (
    StateRow,
    claim_of,
    maybe_row,
    read_row,
    room_for_result,
    unreached_item,
)
from rdq_core.stores.dynamodb.records import Record, record_key
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.transact import ConditionFailed
from rdq_core.stores.dynamodb.values import Item, item_size, moment, number, seconds_up, text

_NOT_REACHED: Final = (Attr.UNREACHED, Attr.UNREACHED_SINCE, Attr.UNADOPTED)
_GIVES_BACK: Final = (Attr.CLAIM_TOKEN, Attr.CLAIMED_AT, Attr.HANDED_OVER)
HANDS_BACK: Final = (*_GIVES_BACK, *_NOT_REACHED)
"""What a row loses when its claim ends."""
ENDS: Final = (*HANDS_BACK, Attr.DUE_AT)
"""What it loses when the task ends: it leaves the due index too."""


class Settling:
    """The verbs of a claim's holder."""

    _access: Access

    def adopt(self, task_id: str, token: str, grant: Grant) -> Claim:
        """See `TaskStore.adopt`."""
        if not is_token(token):
            raise lost(task_id, Verb.ADOPT)
        takes_over = change(holding(grant), (Attr.HANDED_OVER, *_NOT_REACHED))
        try:
            item = self._access.update_state(
                task_id, takes_over, all_of(IS_HELD_BY_CALLER), {":token": text(token)}
            )
        except ConditionFailed as refused:
            row = maybe_row(refused.row)
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
            self._access.settle_state(
                claim.task.id,
                change({Attr.DUE_AT: due_at}),
                all_of(IS_HELD_BY_CALLER, IS_EARLIER),
                {":token": text(claim.token), ":due_at": due_at},
            )
        except ConditionFailed as refused:
            row = maybe_row(refused.row)
            # With our token on it, the lease is ours and lasts as long already.
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
            **_ended(claim, Verb.COMPLETE, Status.SUCCEEDED, now=now, expires_at=expires_at),
            **_success(row, attempt),
        }
        outcome, outside = self._place_result(claim, row, sets, attempt, result, expires_at)
        kept, forgotten = self._access.keep_for_row(row, expires_at=expires_at, now=now)
        if outside is not None:
            self._access.bodies.put(outside)
        self._settle(
            Settled.by(
                claim, row, Verb.COMPLETE, result_ref=None if outside is None else outside.ref
            ),
            {**sets, **outcome, **kept},
            (*ENDS, Attr.FAILURE, *forgotten),
            claim,
        )

    def reschedule(
        self, claim: Claim, attempt: Attempt, failure: Failure, *, due_at: datetime
    ) -> None:
        """See `TaskStore.reschedule`."""
        row = self._access.held(claim, Verb.RESCHEDULE)
        kept = self._access.keep_for_run(row, due_at=due_at, now=self._access.clock.now())
        record = record_of(row, attempt, claim.claim_id)
        self._access.history.put(claim.task.id, record)
        self._settle(
            Settled.by(claim, row, Verb.RESCHEDULE, record_key=record.key),
            {
                **_waiting(claim.claim_id, Verb.RESCHEDULE, failure, due_at),
                **appended(row, record),
                **kept,
            },
            HANDS_BACK,
            claim,
        )

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
        removes = HANDS_BACK if unreached is None else _GIVES_BACK
        self._settle(Settled.by(claim, row, Verb.RELEASE), sets, removes, claim)

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
            self._access.settle_state(
                lapsed.task.id,
                change(sets, _GIVES_BACK),
                all_of(IS_HELD_BY_CALLER, IS_DUE, IS_HANDED_OVER),
                {**values_at(grant.now), ":token": text(lapsed.token)},
            )
        except ConditionFailed as refused:
            settled = Settled(
                task_id=lapsed.task.id, life=lapsed.life, claim_id=grant.claim_id, verb=Verb.RELEASE
            )
            if not was_it_us(self._access, settled, refused.row):
                return False
        self._access.free_slot(lapsed.task, lapsed.fencing_token)
        return True

    def _settle(self, settled: Settled, sets: Item, removes: Sequence[Attr], claim: Claim) -> None:
        try:
            self._access.settle_state(
                claim.task.id,
                change(sets, removes),
                all_of(IS_HELD_BY_CALLER),
                {":token": text(claim.token)},
            )
        except ConditionFailed as refused:
            if not was_it_us(self._access, settled, refused.row):
                raise lost(claim.task.id, settled.verb) from None
        self._access.free_slot(claim.task, claim.fencing_token)

    def _place_result(
        self,
        claim: Claim,
        row: StateRow,
        sets: Item,
        attempt: Attempt,
        result: Result,
        expires_at: datetime | None,
    ) -> tuple[Item, Outside | None]:
        inline = {**contents.inline_result(result), **contents.texts({Attr.WORKER: attempt.worker})}
        settled = {
            attr: value for attr, value in row.item.items() if attr not in (*ENDS, Attr.FAILURE)
        } | sets
        if not attempt.unknown and item_size(inline) <= room_for_result(settled):
            return inline, None
        ends_at = None if expires_at is None else expires_at + AFTER_ROW
        bodies = self._access.bodies
        outside = bodies.result(
            claim.task.id, claim.claim_id, result, attempt, ends_at, life=row.life
        )
        return {Attr.RESULT_REF: text(outside.ref)}, outside


def holding(grant: Grant) -> Item:
    """Who holds a row, since when and until when."""
    return {
        Attr.CLAIM_TOKEN: text(grant.token),
        Attr.CLAIMED_AT: moment(grant.now),
        Attr.DUE_AT: moment(grant.lease_expires_at),
    }


def record_of(row: StateRow, attempt: Attempt, claim_id: str) -> Record:
    """The record that the next attempt of a row becomes: its number comes from the row's history,
    nowhere else.
    """
    return Record(record_key(row.history_length + 1, claim_id), row.last_attempt, row.life, attempt)


def appended(row: StateRow, record: Record) -> Item:
    """What a row says when a record has been added to its history."""
    return {
        Attr.ATTEMPT_COUNT: number(row.task.attempt_count + 1),
        Attr.HISTORY_LENGTH: number(row.history_length + 1),
        Attr.LAST_ATTEMPT: text(record.key),
    }


def marks(claim_id: str, verb: Verb) -> Item:
    """Whose write this was, so that it is recognised when its answer is lost."""
    return {Attr.SETTLED_BY: text(claim_id), Attr.SETTLED_AS: text(verb)}


def ended_at(status: Status, *, now: datetime, expires_at: datetime | None) -> Item:
    """What a row says when its task has ended. It has no end itself while `expires_at` is None."""
    item: Item = {Attr.STATUS: text(status), Attr.COMPLETED_AT: moment(now)}
    return item if expires_at is None else {**item, Attr.EXPIRES_AT: number(seconds_up(expires_at))}


def _ended(
    claim: Claim, verb: Verb, status: Status, *, now: datetime, expires_at: datetime | None
) -> Item:
    return ended_at(status, now=now, expires_at=expires_at) | marks(claim.claim_id, verb)


def _waiting(claim_id: str, verb: Verb, failure: Failure, due_at: datetime) -> Item:
    return {
        Attr.STATUS: text(Status.PENDING),
        Attr.DUE_AT: moment(due_at),
        Attr.FAILURE: text(failure.code),
        **marks(claim_id, verb),
    }


def _success(row: StateRow, attempt: Attempt) -> Item:
    item: Item = {
        Attr.ATTEMPT_COUNT: number(row.task.attempt_count + 1),
        Attr.SUCCESS_STARTED: moment(attempt.started_at),
    }
    return (
        item
        if attempt.finished_at is None
        else {**item, Attr.SUCCESS_FINISHED: moment(attempt.finished_at)}
    )
