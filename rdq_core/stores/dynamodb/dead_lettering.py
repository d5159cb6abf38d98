"""Into the DLQ: the state row and the dead-letter entry change in one transaction, so that there is
never one alone.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.dead import entry_of
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Verb, lost
from rdq_core.domain.task import Failure, Status
from rdq_core.stores.dynamodb.access import Access, is_token, values_at
from rdq_core.stores.dynamodb.ambiguity import Settled, was_it_us
from rdq_core.stores.dynamodb.expressions import IS_DUE, IS_HELD_BY_CALLER, all_of, change
from rdq_core.stores.dynamodb.items import StateRow
from rdq_core.stores.dynamodb.records import Record, entry_item
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.settling import ENDS, appended, ended_at, marks, record_of
from rdq_core.stores.dynamodb.transact import ConditionFailed
from rdq_core.stores.dynamodb.values import Item, text


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
        row = self._access.held(claim, Verb.DEAD_LETTER)
        death = _Death(
            row, claim.token, attempt, failure, claim.claim_id, now, fingerprint, expires_at
        )
        if not self._bury(death, all_of(IS_HELD_BY_CALLER)):
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
        row = self._access.held(lapsed, Verb.DEAD_LETTER)
        death = _Death(
            row, lapsed.token, attempt, failure, grant.claim_id, grant.now, fingerprint, expires_at
        )
        return self._bury(death, all_of(IS_HELD_BY_CALLER, IS_DUE))

    def _bury(self, death: "_Death", condition: str) -> bool:
        row, record = death.row, death.record
        kept, forgotten = self._access.keep_for_row(row, expires_at=death.expires_at, now=death.now)
        if record is not None:
            self._access.history.put(row.task.id, record)
        end = change({**death.row_changes, **kept}, (*ENDS, *forgotten))
        values = {**values_at(death.now), ":token": text(death.token)}
        update = self._access.part(row.task.id, end, condition, values)
        put = {"TableName": self._access.tables.dlq, "Item": death.entry}
        try:
            self._access.sender.transact(
                [{"Update": update}, {"Put": put}], nonce=self._access.ids.nonce()
            )
        except ConditionFailed as refused:
            if not was_it_us(self._access, death.settled, refused.row):
                return False
        self._access.free_slot(row.task, row.fencing_token)
        return True


@dataclass(frozen=True, slots=True)
class _Death:
    """One death: what becomes of the row, the record and the entry."""

    row: StateRow
    token: str
    attempt: Attempt | None
    failure: Failure
    claim_id: str
    now: datetime
    fingerprint: str
    expires_at: datetime | None

    @property
    def record(self) -> Record | None:
        """The record of the attempt that was the last straw, if one was made."""
        return None if self.attempt is None else record_of(self.row, self.attempt, self.claim_id)

    @property
    def settled(self) -> Settled:
        """How this write marks itself."""
        return Settled(
            task_id=self.row.task.id,
            life=self.row.life,
            claim_id=self.claim_id,
            verb=Verb.DEAD_LETTER,
            record_key=None if self.record is None else self.record.key,
        )

    @property
    def row_changes(self) -> Item:
        """What the row says afterwards."""
        return {
            **ended_at(Status.DEAD, now=self.now, expires_at=self.expires_at),
            **marks(self.claim_id, Verb.DEAD_LETTER),
            **({} if self.record is None else appended(self.row, self.record)),
            Attr.FAILURE: text(self.failure.code),
        }

    @property
    def entry(self) -> Item:
        """The dead-letter entry."""
        row = self.row
        task = replace(row.task, status=Status.DEAD, completed_at=self.now, failure=self.failure)
        attempts = row.history_length + (self.record is not None)
        entry = entry_of(
            task, attempts=attempts, payload_size=row.payload_size, fingerprint=self.fingerprint
        )
        return entry_item(entry, life=row.life, partition=row.partition, expires_at=self.expires_at)
