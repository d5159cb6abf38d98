"""Reading the audit log: who did what, newest first, over all queues or of one."""

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from rdq_core.domain import limits
from rdq_core.domain.ids import last_id
from rdq_core.domain.times import format_time, from_millis, to_millis
from rdq_core.engine.ports import AuditRecord
from rdq_core.ops.cursors import Cursors, Position, check_page_size, query_of
from rdq_core.ops.parts import OperatorParts

ALL_QUEUES: Final = "*"
"""In place of a queue's name on records of an operation on every queue. No queue can be called so.
"""
USUAL_SPAN: Final = timedelta(days=30)
"""How far back a list goes that gives no `since`."""
_AHEAD: Final = timedelta(minutes=10)
"""How far other hosts' clocks may be ahead of ours."""
_PAGE: Final = 100


class AuditReader:
    """Queries about what was done."""

    def __init__(self, parts: OperatorParts) -> None:
        self._log = parts.audit
        self._queues = parts.queues
        self._cursors = Cursors(parts.cursor_key)
        self._clock = parts.clock

    def list(
        self,
        queue: str | None = None,
        *,
        principal: str | None = None,
        since: datetime | None = None,
        page_size: int = 50,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """The records of one queue, which may be deleted, or of all queues.

        All queues include operations that concern no single queue. `principal` selects principals
        whose name contains it. `since` is 30 days ago unless given. Raises InputInvalid for the
        size, StaleCursor.
        """
        check_page_size(page_size)
        query = query_of("audit.list", queue, principal)
        position = self._cursors.read(cursor, query=query)
        before, since = self._start(position, since)
        records = (
            each for each in self._walk(queue, since, before) if (principal or "") in each.principal
        )
        items = list(islice(records, page_size + 1))
        more = [items[page_size - 1].id, to_millis(since)] if len(items) > page_size else None
        as_of = self._clock.now() if position is None else position.as_of
        return {
            "items": [record_view(each) for each in items[:page_size]],
            "next_cursor": self._cursors.write(more, query=query, as_of=as_of),
        }

    def _start(self, position: Position | None, since: datetime | None) -> tuple[str, datetime]:
        """The id to begin before, and the time to stop at, which all pages of a list share."""
        if position is not None:
            before, stop = position.handle
            return before, from_millis(stop)
        now = self._clock.now()
        return last_id(now + _AHEAD), since or now - USUAL_SPAN

    def _walk(self, queue: str | None, since: datetime, before: str) -> Iterator[AuditRecord]:
        names = (
            [ALL_QUEUES, *sorted(self._queues.all_stored())]
            if queue is None
            else [limits.check_name("queue", queue)]
        )
        walks = [self._of(name, since, before) for name in names]
        return heapq.merge(*walks, key=lambda record: record.id, reverse=True)

    def _of(self, queue: str, since: datetime, before: str) -> Iterator[AuditRecord]:
        while page := self._log.records(queue, since=since, before=before, limit=_PAGE):
            yield from page
            if len(page) < _PAGE:
                return
            before = page[-1].id


def record_view(record: AuditRecord) -> dict[str, Any]:
    """The JSON shape of a record."""
    return {
        "id": record.id,
        "operation_id": record.operation_id,
        "at": format_time(record.at),
        "principal": record.principal,
        "verified": record.verified,
        "operation": record.operation,
        "queue": record.queue,
        "reason": record.reason,
        "phase": str(record.phase),
        "detail": record.detail,
    }
