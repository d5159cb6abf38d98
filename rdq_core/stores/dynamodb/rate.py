"""A queue's rate limit, shared by all of its sweepers: one item in the control table, written only
to take from it.

The invariant: each start is handed out once. A sweeper computes from the moment that it saw last,
and its write holds only if nobody has moved that moment since.
"""

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from rdq_core.config.settings import RateLimit
from rdq_core.domain.rate import take
from rdq_core.domain.times import to_millis
from rdq_core.engine.ports import IdSource, Jitter, Sleeper
from rdq_core.stores.dynamodb.expressions import (
    IS_HANDED_OUT_AS_READ,
    NOBODY_TOOK_YET,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.schema import Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import Item, Reader, number, text

_TRIES: Final = 6
_MICROS: Final = 1000


class DynamoRateLimiter:
    """A `RateLimiter` in the control table. Safe between threads, processes and hosts whose clocks
    disagree.

    A queue that has no due work, or no limit, costs nothing.
    """

    def __init__(
        self, client: Any, tables: Tables, *, ids: IdSource, jitter: Jitter, sleeper: Sleeper
    ) -> None:
        self._sender = Sender(client, jitter=jitter, sleeper=sleeper)
        self._table = tables.control
        self._ids = ids
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}

    def take(self, queue: str, wanted: int, limit: RateLimit, *, now: datetime) -> int:
        """See `RateLimiter.take`. 0 also when too many sweepers want some at once: the next look
        will get them.
        """
        for _ in range(_TRIES):
            seen = self._seen_until(queue)
            taken = take(
                seen,
                to_millis(now) * _MICROS,
                wanted,
                interval=limit.period / limit.count,
                burst=limit.burst,
            )
            # What was seen can only be too early, so nothing granted by it is nothing granted at
            # all.
            if taken.granted == 0 or self._has_moved(queue, seen, taken.moment):
                return taken.granted
        return 0

    def _has_moved(self, queue: str, seen: int, until: int) -> bool:
        mark = text(self._ids.nonce())
        try:
            self._sender.update(
                update_of(
                    self._table,
                    _key(queue),
                    change({Attr.HANDED_OUT_UNTIL: number(until), Attr.HANDED_OUT_BY: mark}),
                    all_of(IS_HANDED_OUT_AS_READ if seen else NOBODY_TOOK_YET),
                    {":seen_until": number(seen)},
                )
            )
        except ConditionFailed as refused:
            row = refused.row or {}
            self._note(queue, _until(row))
            return row.get(Attr.HANDED_OUT_BY) == mark
        self._note(queue, until)
        return True

    def _seen_until(self, queue: str) -> int:
        with self._lock:
            return self._seen.get(queue, 0)

    def _note(self, queue: str, until: int) -> None:
        with self._lock:
            self._seen[queue] = max(until, self._seen.get(queue, 0))


def _key(queue: str) -> Item:
    return {Attr.PK: text(f"rate#{queue}"), Attr.SK: text("bucket")}


def _until(row: Mapping[str, Any]) -> int:
    """Raises CorruptItem for a bucket that was edited by hand into no whole number."""
    return Reader(row, "the bucket of a rate limit").maybe_number(Attr.HANDED_OUT_UNTIL) or 0
