"""Reading the audit log: who did what, newest first, over all queues or of one."""

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from rdq_core.domain import limits
from rdq_core.domain.ids import last_id
from rdq_core.domain.times import format_time, from_millis, to_millis
from rdq_core.engine.ports import AuditLog, AuditRecord, Clock, QueueStore
from rdq_core.ops.cursors import Cursors, Place, check_page_size, query_of

USUAL_SPAN: Final = timedelta(days=30)
"""How far back a list goes that doesn't say."""
_AHEAD: Final = timedelta(minutes=10)
"""How far other hosts' clocks may be ahead of ours."""
_PAGE: Final = 100


class AuditDesk:
    """Questions about what was done."""

    def __init__(
        self, log: AuditLog, queues: QueueStore, cursors: Cursors, *, clock: Clock
    ) -> None:
        self._log = log
        self._queues = queues
        self._cursors = cursors
        self._clock = clock

    def list(
        self,
        queue: str | None = None,
        *,
        principal: str | None = None,
        since: datetime | None = None,
        page_size: int = 50,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """The records of a queue, a deleted one too, or of all; of a principal whose name has this
        text in it.

        `since` is 30 days ago unless given. Raises InputInvalid for the size, StaleCursor.
        """
        check_page_size(page_size)
        query = query_of("audit.list", queue, principal)
        place = self._cursors.read(cursor, query=query)
        before, since = self._start(place, since)
        records = (
            each for each in self._walk(queue, since, before) if (principal or "") in each.principal
        )
        found = list(islice(records, page_size + 1))
        more = [found[page_size - 1].id, to_millis(since)] if len(found) > page_size else None
        as_of = self._clock.now() if place is None else place.as_of
        return {
            "items": [record_view(each) for each in found[:page_size]],
            "next_cursor": self._cursors.write(more, query=query, as_of=as_of),
        }

    def _start(self, place: Place | None, since: datetime | None) -> tuple[str, datetime]:
        """The id before which to begin, and where to stop: a cursor keeps to the span that it was
        made in.
        """
        if place is not None:
            before, stop = place.handle
            return before, from_millis(stop)
        now = self._clock.now()
        return last_id(now + _AHEAD), since or now - USUAL_SPAN

    def _walk(self, queue: str | None, since: datetime, before: str) -> Iterator[AuditRecord]:
        names = (
            sorted(self._queues.all_stored())
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
    """A record as programs are answered."""
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
