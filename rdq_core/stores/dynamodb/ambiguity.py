"""Whether a refused write was our own: what the row that came back with the refusal proves.

botocore sends a request again when its answer was lost. If the first attempt was carried out, the
second fails its condition, and our own success looks like another writer's. Marks in the row tell
them apart. A writer that has really lost deletes what it had put before, but only if the row proves
that it will never be published; in doubt it stays, and the search for orphans finds it later.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rdq_core.domain.lifecycle import Verb
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.history import attempt_no_of
from rdq_core.stores.dynamodb.state_row import StateRow, maybe_row


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlingWrite:
    """A settling write that was sent: for which claim of which life, with which verb, and what was
    put before it.
    """

    task_id: str
    life: str
    claim_id: str
    verb: Verb
    record_key: str | None = None
    result_ref: str | None = None


def was_our_write(
    access: Access, write: SettlingWrite, refused_row: Mapping[str, Any] | None
) -> bool:
    """Whether the refused write had been carried out before. If not, what was put before it is
    deleted where that is safe.
    """
    row = maybe_row(refused_row)
    if row is None:
        return False
    settled_by_us = row.life == write.life and row.settled_by == write.claim_id
    if settled_by_us and row.settled_as == write.verb:
        return True
    is_published = _is_published(access, write, row)
    if is_published is False:
        _discard(access, write.task_id, record_key=write.record_key)
    if write.result_ref is not None and row.result_ref != write.result_ref:
        _discard(access, write.task_id, result_ref=write.result_ref)
    # A published record proves our write, if others have written since. Marked as ours with another
    # verb, the row shows that this claim was settled differently before.
    return bool(is_published) and not settled_by_us


def _is_published(access: Access, write: SettlingWrite, row: StateRow) -> bool | None:
    """Whether the row's history holds our record; None when that is unknown. A history that is
    longer than ours may still hold it: others have written after our success.
    """
    if write.record_key is None:
        return None
    if row.life != write.life or row.history_length < attempt_no_of(write.record_key):
        return False
    return access.history.has(row, write.record_key)


def _discard(
    access: Access, task_id: str, *, record_key: str | None = None, result_ref: str | None = None
) -> None:
    # A failure leaves an orphan, which the clean-up finds.
    with contextlib.suppress(StoreFailed):
        if record_key is not None:
            access.history.discard(task_id, [record_key])
        access.bodies.discard(task_id, results=(result_ref,))
