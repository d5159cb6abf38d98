"""Was it us? What the row that came back with a refusal says about our own write.

botocore repeats a request whose answer was lost, so our own success comes back as a failed
condition. Marks in the row tell it from another's. Whoever really lost deletes what it had put, but
only when the row proves that nobody will ever see it; in any doubt it stays, and the clean-up finds
it later.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Verb
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.items import StateRow, maybe_row
from rdq_core.stores.dynamodb.records import number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A settling write as it was tried: by which claim, as what, and which records it had put
    before.
    """

    task_id: str
    life: str
    claim_id: str
    verb: Verb
    record_key: str | None = None
    result_ref: str | None = None

    @classmethod
    def by(
        cls,
        claim: Claim,
        row: StateRow,
        verb: Verb,
        *,
        record_key: str | None = None,
        result_ref: str | None = None,
    ) -> "Settled":
        """The holder's own."""
        return cls(
            task_id=claim.task.id,
            life=row.life,
            claim_id=claim.claim_id,
            verb=verb,
            record_key=record_key,
            result_ref=result_ref,
        )


def was_it_us(access: Access, settled: Settled, came_back: Mapping[str, Any] | None) -> bool:
    """Whether the refused write had been carried out before. If not, what it had put is deleted
    where that is safe.
    """
    row = maybe_row(came_back)
    if row is None:
        return False
    ours = row.life == settled.life and row.settled_by == settled.claim_id
    if ours and row.settled_as == settled.verb:
        return True
    published = _is_published(access, settled, row)
    if published is False:
        discard(access, settled.task_id, record_key=settled.record_key)
    if settled.result_ref is not None and row.result_ref != settled.result_ref:
        discard(access, settled.task_id, result_ref=settled.result_ref)
    # Marked as ours but as something else: an earlier, different settling of this claim is what
    # happened.
    return bool(published) and not ours


def _is_published(access: Access, settled: Settled, row: StateRow) -> bool | None:
    """Whether our attempt's record is history. A longer history may hold it: then others wrote
    after our success.
    """
    if settled.record_key is None:
        return None
    if row.life != settled.life or row.history_length < number_of(settled.record_key):
        return False
    return access.history.has(row, settled.record_key)


def discard(
    access: Access,
    task_id: str,
    *,
    record_key: str | None = None,
    result_ref: str | None = None,
    body_ref: str | None = None,
) -> None:
    """Delete what is proved to be nobody's; a failure to do so is left to the clean-up."""
    with contextlib.suppress(StoreFailed):
        if record_key is not None:
            access.history.discard(task_id, [record_key])
        access.bodies.discard(task_id, bodies=(body_ref,), results=(result_ref,))
