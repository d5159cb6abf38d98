"""Bodies of work that is long overdue, in a paused queue for instance, live on although nobody claims it."""

import contextlib
from datetime import datetime

from rdq_core.domain.limits import LONG_OVERDUE
from rdq_core.engine.ports import Candidate
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.expressions import BODY_IS_AS_SEEN, all_of, change
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.transact import ConditionFailed


class Renewing:
    """The verb of whoever looks after work that waits for long."""

    _access: Access

    def renew(self, candidate: Candidate, *, now: datetime) -> None:
        """See `TaskStore.renew`. A read of the row; two writes a month where its body lives outside."""
        row = self._access.state(candidate.task_id)
        if row is None or row.due_at is None or row.due_at + LONG_OVERDUE > now:
            return
        remembered = self._access.bodies.keep_for_run(row, due_at=now, now=now)
        if not remembered:
            return
        seen = {":seen_body": row.item[Attr.BODY_REF], ":seen_end": row.item[Attr.BODY_ENDS_AT]}
        # A row that has changed since names another body, or has seen to this one's end itself.
        with contextlib.suppress(ConditionFailed):
            self._access.settle_state(row.task.id, change(remembered), all_of(BODY_IS_AS_SEEN), seen)
