"""Into the DLQ: the state row and the dead-letter entry change in one transaction, so that there is never one alone."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.dead import entry_of
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Verb, lost
from rdq_core.domain.task import Failure, Status
from rdq_core.stores.dynamodb.access import Access, is_token, values_at
from rdq_core.stores.dynamodb.expressions import IS_DUE, IS_HELD_BY_CALLER, all_of, change
from rdq_core.stores.dynamodb.items import StateRow
from rdq_core.stores.dynamodb.records import Record, entry_item
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.settling import ENDS, appended, ended_at, marks, record_of
from rdq_core.stores.dynamodb.transact import ConditionFailed
from rdq_core.stores.dynamodb.values import Item, text
from rdq_core.stores.dynamodb.verdicts import Settled, was_it_us


class DeadLettering:
    """The verbs that end in DEAD."""

    _access: Access

    def dead_letter(
        self,
        claim: Claim,
        attempt: Attempt | None,
        failure: Failure,
        *,
        now: datetime,
        fingerprint: str,
        expires_at: datetime | None,
    ) -> None:
        """See `TaskStore.dead_letter`."""
        death = _Death(claim, attempt, failure, claim.claim_id, now, fingerprint, expires_at)
        if not self._bury(death, self._access.held(claim, Verb.DEAD_LETTER), all_of(IS_HELD_BY_CALLER)):
            raise lost(claim.task.id, Verb.DEAD_LETTER)

    def dead_letter_lapsed(
        self,
        lapsed: Claim,
        attempt: Attempt,
        failure: Failure,
        grant: Grant,
        *,
        fingerprint: str,
        expires_at: datetime | None,
    ) -> bool:
        """See `TaskStore.dead_letter_lapsed`."""
        if not is_token(lapsed.token):
            return False
        death = _Death(lapsed, attempt, failure, grant.claim_id, grant.now, fingerprint, expires_at)
        return self._bury(death, self._access.held(lapsed, Verb.DEAD_LETTER), all_of(IS_HELD_BY_CALLER, IS_DUE))

    def _bury(self, death: "_Death", row: StateRow, condition: str) -> bool:
        kept, forgotten = self._access.bodies.keep_for_row(row, expires_at=death.expires_at, now=death.now)
        if death.record is not None:
            self._access.history.put(row.task.id, death.record)
        end = change({**death.row_changes, **kept}, (*ENDS, *forgotten))
        values = {**values_at(death.now), ":token": text(death.claim.token)}
        update = self._access.part(row.task.id, end, condition, values)
        put = {"TableName": self._access.tables.dlq, "Item": death.entry(row)}
        try:
            self._access.sender.transact([{"Update": update}, {"Put": put}], nonce=self._access.ids.nonce())
        except ConditionFailed as refused:
            return was_it_us(self._access, death.settled, refused.row)
        return True


class _Death:
    """One death: what becomes of the row, the record and the entry."""

    def __init__(
        self,
        claim: Claim,
        attempt: Attempt | None,
        failure: Failure,
        claim_id: str,
        now: datetime,
        fingerprint: str,
        expires_at: datetime | None,
    ) -> None:
        self.claim = claim
        self.now = now
        self.expires_at = expires_at
        self.record: Record | None = None if attempt is None else record_of(claim, attempt, claim_id)
        self._failure = failure
        self._claim_id = claim_id
        self._fingerprint = fingerprint

    @property
    def settled(self) -> Settled:
        """How this write marks itself."""
        return Settled(
            task_id=self.claim.task.id,
            life=self.claim.life,
            claim_id=self._claim_id,
            verb=Verb.DEAD_LETTER,
            record_key=None if self.record is None else self.record.key,
        )

    @property
    def row_changes(self) -> Item:
        """What the row says afterwards."""
        return {
            **ended_at(Status.DEAD, now=self.now, expires_at=self.expires_at),
            **marks(self._claim_id, Verb.DEAD_LETTER),
            **({} if self.record is None else appended(self.claim, self.record)),
            Attr.FAILURE: text(self._failure.code),
        }

    def entry(self, row: StateRow) -> dict[str, Any]:
        """The dead-letter entry."""
        task = replace(self.claim.task, status=Status.DEAD, completed_at=self.now, failure=self._failure)
        attempts = self.claim.history_length + (self.record is not None)
        entry = entry_of(task, attempts=attempts, payload_size=row.payload_size, fingerprint=self._fingerprint)
        return entry_item(entry, life=row.life, partition=row.partition, expires_at=self.expires_at)
