"""What hosts agree on through one item of the control table each: the rate limit of a queue, the
reservation of a queue by a sweep, and the key that page cursors are signed with.
"""

import contextlib
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from rdq_core.config.settings import RateLimit
from rdq_core.domain.rate import take
from rdq_core.domain.times import to_millis
from rdq_core.engine.ports import IdSource, Jitter, Sleeper
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.expressions import (
    HANDED_OUT_AS_READ,
    IS_NOT_RESERVED,
    IS_RESERVED,
    NO_SECRET_YET,
    NOTHING_HANDED_OUT,
    RESERVATION_ENDS_SOONER,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.schema import CURSOR_SECRET, Attr, Tables
from rdq_core.stores.dynamodb.sender import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import Item, Reader, Value, binary, moment, number, text

# -- rate limits -----------------------------------------------------------------------------------

_TAKE_ROUNDS: Final = 6
_MICROS: Final = 1000


class DynamoRateLimiter:
    """A `RateLimiter`. Safe between threads, processes, and hosts whose clocks disagree.

    The item is written only to take starts: a queue without due work, or without a limit, costs
    nothing. The invariant: each start is handed out once, since a write holds only if the bucket is
    as its sweeper read it.
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
        """See `RateLimiter.take`. 0 also when too many sweepers take starts at the same time: the
        next look gets them.
        """
        for _ in range(_TAKE_ROUNDS):
            with self._lock:
                seen = self._seen.get(queue, 0)
            taken = take(
                seen,
                to_millis(now) * _MICROS,
                wanted,
                interval=limit.period / limit.count,
                burst=limit.burst,
            )
            # Another sweeper can only have moved the bucket on. So what is granted from memory may
            # be too much and needs the write, but a grant of nothing does not.
            if taken.granted == 0 or self._has_moved(queue, seen, taken.moment):
                return taken.granted
        return 0

    def _has_moved(self, queue: str, seen: int, until: int) -> bool:
        mark = text(self._ids.nonce())
        try:
            self._sender.update(
                update_of(
                    self._table,
                    {Attr.PK: text(f"rate#{queue}"), Attr.SK: text("bucket")},
                    change({Attr.HANDED_OUT_UNTIL: number(until), Attr.HANDED_OUT_BY: mark}),
                    all_of(HANDED_OUT_AS_READ if seen else NOTHING_HANDED_OUT),
                    {":seen_until": number(seen)},
                ),
                returning=False,
            )
        except ConditionFailed as refused:
            item = refused.row or {}
            self._note(queue, _handed_out_until(item))
            # With our mark, an earlier attempt of this write was carried out.
            return item.get(Attr.HANDED_OUT_BY) == mark
        self._note(queue, until)
        return True

    def _note(self, queue: str, until: int) -> None:
        with self._lock:
            self._seen[queue] = max(until, self._seen.get(queue, 0))


def _handed_out_until(item: Mapping[str, Any]) -> int:
    """Raises CorruptItem for a bucket that was edited by hand into something else than a number."""
    return Reader(item, "the bucket of a rate limit").maybe_number(Attr.HANDED_OUT_UNTIL) or 0


# -- reservations ----------------------------------------------------------------------------------


class DynamoReservations:
    """A `Reservations`: one item per queue, written only while there is work. Safe between threads,
    processes and hosts.
    """

    def __init__(
        self, client: object, tables: Tables, *, ids: IdSource, jitter: Jitter, sleeper: Sleeper
    ) -> None:
        self._sender = Sender(client, jitter=jitter, sleeper=sleeper)
        self._table = tables.control
        self._ids = ids

    def acquire(self, queue: str, *, now: datetime, until: datetime) -> bool:
        """See `Reservations.acquire`."""
        mark = text(self._ids.nonce())
        sets = {Attr.RESERVED_UNTIL: moment(until), Attr.RESERVED_BY: mark}
        try:
            self._change(queue, sets, IS_NOT_RESERVED, {":now": moment(now)})
        except ConditionFailed as refused:
            # With our mark, it is our own reservation, and only its answer was lost.
            return (refused.row or {}).get(Attr.RESERVED_BY) == mark
        return True

    def extend(self, queue: str, *, until: datetime) -> None:
        """See `Reservations.extend`."""
        sets = {Attr.RESERVED_UNTIL: moment(until)}
        with contextlib.suppress(ConditionFailed):
            self._change(queue, sets, RESERVATION_ENDS_SOONER, {":until": moment(until)})

    def release(self, queue: str) -> None:
        """See `Reservations.release`."""
        with contextlib.suppress(ConditionFailed):
            self._change(queue, {Attr.RESERVED_UNTIL: number(0)}, IS_RESERVED, {})

    def _change(
        self, queue: str, sets: dict[Attr, Value], clause: str, values: dict[str, Value]
    ) -> None:
        key: Item = {Attr.PK: text(f"kick#{queue}"), Attr.SK: text("awake")}
        request = update_of(self._table, key, change(sets), all_of(clause), values)
        self._sender.update(request, returning=False)


# -- the cursor key --------------------------------------------------------------------------------

_CURSOR_KEY: Final[Item] = {Attr.PK: text(CURSOR_SECRET), Attr.SK: text("key")}
_SHORTEST_KEY: Final = 16


class DynamoCursorKey:
    """A `CursorKey`, created by the process that first needs it. Safe between threads; a process
    reads it once.
    """

    def __init__(
        self, client: Any, tables: Tables, *, ids: IdSource, jitter: Jitter, sleeper: Sleeper
    ) -> None:
        self._sender = Sender(client, jitter=jitter, sleeper=sleeper)
        self._table = tables.control
        self._ids = ids
        self._lock = threading.Lock()
        self._known: bytes | None = None

    def key(self) -> bytes:
        """See `CursorKey.key`. Raises CorruptItem for one that was edited by hand."""
        with self._lock:
            if self._known is None:
                item = self._sender.get(self._table, _CURSOR_KEY) or self._create()
                self._known = _read_key(item)
            return self._known

    def _create(self) -> Item:
        # Two tokens of at least 122 random bits each.
        secret = binary((self._ids.token() + self._ids.token()).encode())
        item = {**_CURSOR_KEY, Attr.SECRET: secret}
        try:
            self._sender.put(self._table, item, all_of(NO_SECRET_YET), {})
        except ConditionFailed as refused:
            # Another process was faster: its key is the installation's.
            return dict(refused.row or item)
        return item


def _read_key(item: Item) -> bytes:
    key = Reader(item, "the key of page cursors").maybe_bytes(Attr.SECRET)
    if key is None or len(key) < _SHORTEST_KEY:
        raise CorruptItem(
            "the key of page cursors cannot be read",
            hint=f"delete the item {CURSOR_SECRET} of the control table",
        )
    return key
