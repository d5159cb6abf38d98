"""Bodies of work that is long overdue, in a paused queue for instance, live on although nobody
claims it.
"""

import contextlib
from datetime import datetime

from rdq_core.domain.limits import LONG_OVERDUE
from rdq_core.engine.ports import Candidate
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.expressions import (
    BODY_IS_AS_SEEN,
    REFERENCES_ARE_AS_SEEN,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.items import StateRow
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.transact import ConditionFailed
from rdq_core.stores.dynamodb.values import Item


class Renewing:
    """The verb of whoever looks after work that waits for long."""

    _access: Access

    def renew(self, candidate: Candidate, *, now: datetime) -> None:
        """See `TaskStore.renew`. A read of the row; two writes a month where its body lives
        outside, and two more, or three, where it has references.
        """
        row = self._access.state(candidate.task_id)
        if row is None or row.due_at is None or row.due_at + LONG_OVERDUE > now:
            return
        if body := self._access.bodies.keep_for_run(row, due_at=now, now=now):
            seen = {":seen_body": row.item[Attr.BODY_REF], ":seen_end": row.item[Attr.BODY_ENDS_AT]}
            self._remember(row, body, BODY_IS_AS_SEEN, seen)
        if references := self._access.references.keep_for_run(row, due_at=now, now=now):
            seen = {":seen_references_end": row.item[Attr.REFERENCES_END_AT]}
            self._remember(row, references, REFERENCES_ARE_AS_SEEN, seen)

    def _remember(self, row: StateRow, remembered: Item, clause: str, seen: Item) -> None:
        # A row that has changed since names another body, or has seen to the end itself.
        with contextlib.suppress(ConditionFailed):
            self._access.settle_state(row.task.id, change(remembered), all_of(clause), seen)
