"""Reading the audit log: who did what, newest first, over all queues or of one."""

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from rdq_core.domain import limits
from rdq_core.domain.ids import check_id, last_id
from rdq_core.domain.times import format_time
from rdq_core.engine.ports import AuditLog, AuditRecord, Clock, QueueStore
from rdq_core.errors import InputInvalid, StaleCursor
from rdq_core.ops.cursors import from_cursor, to_cursor

USUAL_SPAN: Final = timedelta(days=30)
"""How far back a list goes that doesn't say."""
_AHEAD: Final = timedelta(minutes=10)
"""How far other hosts' clocks may be ahead of ours."""
_PAGE: Final = 100
_EVERY_QUEUE: Final = "*"


class AuditDesk:
    """Questions about what was done."""

    def __init__(self, log: AuditLog, queues: QueueStore, *, clock: Clock) -> None:
        self._log = log
        self._queues = queues
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
        """The records of a queue, a deleted one too, or of all; of a principal whose name has this text in it.

        `since` is 30 days ago unless given. Raises InputInvalid for the size, StaleCursor.
        """
        least, most = limits.PAGE_RANGE
        if not least <= page_size <= most:
            raise InputInvalid("page_size", f"is {page_size}; {least} to {most} are allowed")
        query = {"queue": queue or _EVERY_QUEUE, "digest": principal or ""}
        before, since = self._start(from_cursor(cursor, **query), since)
        records = (each for each in self._walk(queue, since, before) if (principal or "") in each.principal)
        found = list(islice(records, page_size + 1))
        more = found[page_size - 1].id if len(found) > page_size else None
        handle = None if more is None else (more, since)
        return {"items": [record_view(each) for each in found[:page_size]], "next_cursor": to_cursor(handle, **query)}

    def _start(self, handle: Any, since: datetime | None) -> tuple[str, datetime]:
        """The id before which to begin, and where to stop: a cursor keeps to the span that it was made in."""
        now = self._clock.now()
        latest = last_id(now + _AHEAD)
        if handle is None:
            return latest, since or now - USUAL_SPAN
        match handle:
            case (str() as before, datetime() as stop):
                return min(_checked(before), latest), stop
            case _:
                raise _stale()

    def _walk(self, queue: str | None, since: datetime, before: str) -> Iterator[AuditRecord]:
        names = sorted(self._queues.all_stored()) if queue is None else [limits.check_name("queue", queue)]
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


def _checked(before: str) -> str:
    try:
        return check_id(before)
    except InputInvalid:
        raise _stale() from None


def _stale() -> StaleCursor:
    return StaleCursor("the cursor can't be read", hint="start again without a cursor")
