"""Concurrency keys: a slot in the control table names the claim that took it.

    claim ── row and slot, in one transaction ──► in flight ──► every way out frees the slot, best effort

A slot has no end of its own. The invariant: it is held exactly as long as the task that it names,
read consistently, is in flight under that key, lapsed or not. So a slot that nobody freed costs the
next claimant one read and nothing else, and no clock decides who holds a key.
"""

from collections.abc import Mapping
from typing import Any, Final

from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.task import Status
from rdq_core.engine.ports import KEY_BUSY, Candidate, KeyBusy
from rdq_core.stores.dynamodb.access import Access, slot_key, values_at
from rdq_core.stores.dynamodb.claiming import CLAIMABLE, kept, leased
from rdq_core.stores.dynamodb.expressions import SLOT_IS_AS_SEEN, SLOT_IS_FREE, all_of, change
from rdq_core.stores.dynamodb.forgetting import unless_forgotten
from rdq_core.stores.dynamodb.items import RowClaim, StateRow, claim_of, maybe_row, read_row
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.transact import ConditionFailed, conditioned
from rdq_core.stores.dynamodb.values import number, text

_TRIES: Final = 4
_ROW, _SLOT = 0, 1


class Keyed:
    """The claim of a task that has a concurrency key."""

    _access: Access

    def claim_keyed(self, candidate: Candidate, grant: Grant) -> Claim | KeyBusy | None:
        """See `TaskStore.claim_keyed`. A read, and a transaction; another read where the slot names
        somebody.
        """
        row = self._access.state(candidate.task_id)
        if row is None or row.task.concurrency_key is None:
            return None
        seen: Mapping[str, Any] | None = None
        for _ in range(_TRIES):
            try:
                return unless_forgotten(self._access, self._take(row, candidate, grant, seen))
            except ConditionFailed as refused:
                if _ROW in refused.rows:
                    return unless_forgotten(self._access, _own_claim(refused.rows[_ROW], grant))
                seen = refused.rows.get(_SLOT) or None
                if seen is not None and self._is_held(seen, row):
                    return KEY_BUSY
        return KEY_BUSY

    def _take(
        self, row: StateRow, candidate: Candidate, grant: Grant, seen: Mapping[str, Any] | None
    ) -> RowClaim:
        fence = number(candidate.fencing_token + 1)
        sets = {
            **leased(candidate.fencing_token + 1, grant),
            **kept(self._access, row, candidate.due_at, grant),
        }
        values = {**values_at(grant.now), ":seen_fence": number(candidate.fencing_token)}
        update = self._access.part(
            row.task.id, change(sets, (Attr.FAILURE,)), all_of(*CLAIMABLE), values
        )
        slot = {**slot_key(row.task), Attr.TASK_ID: text(row.task.id), Attr.FENCING_TOKEN: fence}
        free = all_of(SLOT_IS_FREE) if seen is None else all_of(SLOT_IS_AS_SEEN)
        was = (
            {}
            if seen is None
            else {":slot_task": seen[Attr.TASK_ID], ":slot_fence": seen[Attr.FENCING_TOKEN]}
        )
        put = conditioned({"TableName": self._access.tables.control, "Item": slot}, free, was)
        self._access.sender.transact(
            [{"Update": update}, {"Put": put}], nonce=self._access.ids.nonce()
        )
        after = {
            attr: value for attr, value in {**row.item, **sets}.items() if attr != Attr.FAILURE
        }
        return claim_of(read_row(after))

    def _is_held(self, slot: Mapping[str, Any], row: StateRow) -> bool:
        """Whether the task that a slot names is in flight under the key. It is read after the slot."""
        holder = self._access.state(slot[Attr.TASK_ID]["S"])
        return (
            holder is not None
            and holder.task.status is Status.IN_FLIGHT
            and holder.task.queue == row.task.queue
            and holder.task.concurrency_key == row.task.concurrency_key
        )


def _own_claim(came_back: Mapping[str, Any] | None, grant: Grant) -> RowClaim | None:
    row = maybe_row(came_back)
    return claim_of(row) if row is not None and row.token == grant.token else None
