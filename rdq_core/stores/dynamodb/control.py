"""Queue configuration in the control table: one item a queue, all in one partition, so that one
query reads them all.

The invariant: whoever asks is answered with what was stored at most `fresh_for` ago, read
consistently; and an item that nobody can read stops its own queue only.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import (
    Override,
    StoredQueue,
    deleted_queue,
    overridden,
    owned,
    redeclared,
    unknown_queue,
)
from rdq_core.domain import limits
from rdq_core.engine.ports import Clock, Jitter, Sleeper
from rdq_core.errors import ConfigInvalid, CorruptItem, QueueNotFound, StoreFailed
from rdq_core.stores.dynamodb.expressions import (
    IS_CONFIGURED,
    IS_DECLARED_AS_READ,
    IS_DELETED_AS_READ,
    IS_DELETING_AS_READ,
    IS_NOT_DELETED,
    IS_NOT_DELETING,
    IS_OVERRIDDEN_AS_READ,
    IS_UNCONFIGURED,
    LOOKED_AT_AS_READ,
    NOBODY_LOOKED_YET,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.queue_items import key_of, layers_change, pause_change, read_queue
from rdq_core.stores.dynamodb.schema import QUEUES, Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import Item, Value, moment, number, text

FRESH_FOR_SWEEPS: Final = timedelta(seconds=1)
FRESH_FOR_SUBMITS: Final = timedelta(minutes=1)

_MAX_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Every queue as it was read at `at`, in monotonic seconds; of an unreadable one, what is wrong
    with it.
    """

    at: float
    stored: Mapping[str, StoredQueue]
    queues: Mapping[str, QueueSettings]
    broken: Mapping[str, str]


class DynamoQueues:
    """A `QueueStore` in the control table. Safe between threads: one of them reads, the others wait
    for it.

    `settings` and `all` answer from what was read at most `fresh_for` ago, `for_submits` from what
    was read at most `submits_fresh_for` ago, by whomever. A process that only submits reads its own
    queues, one item each.
    """

    def __init__(
        self,
        client: Any,
        tables: Tables,
        *,
        clock: Clock,
        jitter: Jitter,
        sleeper: Sleeper,
        fresh_for: timedelta = FRESH_FOR_SWEEPS,
        submits_fresh_for: timedelta = FRESH_FOR_SUBMITS,
    ) -> None:
        self._sender = Sender(client, jitter=jitter, sleeper=sleeper)
        self._table = tables.control
        self._clock = clock
        self._fresh_for = fresh_for.total_seconds()
        self._submits_fresh_for = submits_fresh_for.total_seconds()
        self._lock = threading.Lock()
        self._snapshot: _Snapshot | None = None
        self._singly: dict[str, tuple[float, QueueSettings]] = {}

    # -- what is in force --------------------------------------------------------------------------

    def settings(self, queue: str, *, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """See `QueueSource.settings`. Raises CorruptItem when what is stored for the queue can't be
        read.
        """
        snapshot = self._read()
        if queue in snapshot.queues:
            plain = snapshot.queues[queue]
            return (
                snapshot.stored[queue].settings(self._clock.now(), definition)
                if definition
                else plain
            )
        if queue in snapshot.broken:
            raise _unreadable(snapshot.broken[queue])
        raise _unknown(queue, snapshot)

    def for_submits(self, queue: str) -> QueueSettings:
        """See `QueueSource.for_submits`. Raises CorruptItem as `settings` does."""
        with self._lock:
            at = self._clock.monotonic()
            remembered = self._remembered(queue, at)
            if remembered is not None and not remembered.deleting:
                return remembered
            stored = self.stored(queue)
            if stored is not None and not stored.is_deleted:
                settings = _settings(stored, self._clock.now())
                self._singly[queue] = (at, settings)
                return settings
            self._singly.pop(queue, None)
        raise deleted_queue(stored) if stored is not None else _unknown(queue, self._read())

    def all(self) -> Mapping[str, QueueSettings]:
        """See `QueueSource.all`. Queues that can't be read are left out."""
        return self._read().queues

    def all_stored(self) -> Mapping[str, StoredQueue]:
        """See `QueueStore.all_stored`."""
        return self._read().stored

    def shards_ever(self, queue: str) -> int:
        """The most index shards that a queue has had, a deleted one included. Raises as `settings`
        does.
        """
        stored = self._read().stored.get(queue)
        if stored is not None and stored.is_deleted:
            return _settings(stored, self._clock.now()).shards_ever
        return self.settings(queue).shards_ever

    def _remembered(self, queue: str, at: float) -> QueueSettings | None:
        """What was read last, if that is fresh enough for a submit."""
        found: list[tuple[float, QueueSettings]] = []
        if self._snapshot is not None and queue in self._snapshot.queues:
            found.append((self._snapshot.at, self._snapshot.queues[queue]))
        if queue in self._singly:
            found.append(self._singly[queue])
        read_at, settings = max(found, key=lambda reading: reading[0], default=(at, None))
        return settings if at - read_at < self._submits_fresh_for else None

    def _read(self) -> _Snapshot:
        with self._lock:
            at = self._clock.monotonic()
            if self._snapshot is None or at - self._snapshot.at >= self._fresh_for:
                self._snapshot = self._taken(at)
            return self._snapshot

    def _taken(self, at: float) -> _Snapshot:
        stored: dict[str, StoredQueue] = {}
        queues: dict[str, QueueSettings] = {}
        broken: dict[str, str] = {}
        items = self._items()
        now = self._clock.now()
        for item in items:
            queue = item[Attr.SK]["S"]
            try:
                stored[queue] = read_queue(item)
                if not stored[queue].is_deleted:
                    queues[queue] = stored[queue].settings(now)
            except (CorruptItem, ConfigInvalid) as problem:
                broken[queue] = problem.message
        return _Snapshot(at, stored, queues, broken)

    def _items(self) -> list[Item]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": f"{Attr.PK.alias} = :queues",
            "ConsistentRead": True,
        }
        items: list[Item] = []
        while True:
            page = self._sender.query(request, {":queues": text(QUEUES)})
            items += page.get("Items", ())
            if "LastEvaluatedKey" not in page:
                return items
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    # -- the layers --------------------------------------------------------------------------------

    def stored(self, queue: str) -> StoredQueue | None:
        """See `QueueStore.stored`."""
        item = self._sender.get(self._table, key_of(queue))
        return None if item is None else read_queue(item)

    def put_declared(
        self,
        queue: str,
        declared: Mapping[str, Any],
        file_defaults: Mapping[str, Any],
        *,
        expected_revision: int,
    ) -> StoredQueue:
        """See `QueueStore.put_declared`."""
        limits.check_name("queue", queue)
        for _ in range(_MAX_TRIES):
            before = self.stored(queue)
            after = redeclared(
                before, queue, declared, file_defaults, expected_revision=expected_revision
            )
            if self._has_put(before, after):
                return after
        raise _too_busy(queue)

    def put_owners(self, seen: StoredQueue, owners: tuple[str, ...]) -> bool:
        """See `QueueStore.put_owners`."""
        return self._has_put(seen, owned(seen, owners))

    def put_override(
        self, queue: str, override: Override | None, *, expected_revision: int
    ) -> StoredQueue:
        """See `QueueStore.put_override`."""
        for _ in range(_MAX_TRIES):
            before = self._existing(queue)
            after = overridden(before, override, expected_revision=expected_revision)
            if self._has_put(before, after):
                return after
        raise _too_busy(queue)

    def pause(
        self, queue: str, *, paused: bool, now: datetime, reason: str | None = None
    ) -> StoredQueue:
        """See `QueueStore.pause`."""
        try:
            item = self._update(
                queue,
                pause_change(paused=paused, now=moment(now), reason=reason),
                (IS_CONFIGURED, IS_NOT_DELETED),
            )
        except ConditionFailed:
            raise self._missing(queue) from None
        return read_queue(item)

    def _existing(self, queue: str) -> StoredQueue:
        before = self.stored(queue)
        if before is None or before.is_deleted:
            raise self._missing(queue)
        return before

    def _missing(self, queue: str) -> QueueNotFound:
        self._forget()
        return _unknown(queue, self._read())

    def _has_put(self, before: StoredQueue | None, after: StoredQueue) -> bool:
        """Whether the layers are stored as in `after`; False, and nothing written, when `before` is
        outdated.
        """
        if after is before:
            return True
        seen: dict[str, Value] = {}
        clauses = [IS_UNCONFIGURED]
        if before is not None:
            seen = {
                ":seen_revision": number(before.revision),
                ":seen_override_revision": number(before.override_revision),
            }
            clauses = [IS_DECLARED_AS_READ, IS_OVERRIDDEN_AS_READ]
        return self._has_updated(after.queue, layers_change(before, after), clauses, seen)

    # -- deletion ----------------------------------------------------------------------------------

    def begin_delete(self, queue: str, *, now: datetime) -> StoredQueue:
        """See `QueueStore.begin_delete`."""
        began = change({Attr.DELETING_AT: moment(now)}, [Attr.LOOKED_AT])
        try:
            return read_queue(self._update(queue, began, (IS_CONFIGURED, IS_NOT_DELETING)))
        except ConditionFailed:
            return self._existing(queue)

    def note_look(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.note_look`."""
        looked = change({Attr.LOOKED_AT: moment(now)})
        if seen.looked_at is None:
            return self._has_updated(seen.queue, looked, (IS_CONFIGURED, NOBODY_LOOKED_YET), {})
        values = {":seen_looked_at": moment(seen.looked_at)}
        return self._has_updated(seen.queue, looked, (LOOKED_AT_AS_READ,), values)

    def end_delete(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.end_delete`."""
        if seen.deleting_at is None:
            return False
        ended = change({Attr.DELETED_AT: moment(now), Attr.LOOKED_AT: moment(now)})
        values = {":seen_deleting_at": moment(seen.deleting_at)}
        clauses = (IS_DELETING_AS_READ, IS_NOT_DELETED)
        return self._has_updated(
            seen.queue, ended, clauses, values, mark=(Attr.DELETED_AT, moment(now))
        )

    def reopen(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.reopen`."""
        if seen.deleted_at is None:
            return False
        opened = change({Attr.DELETING_AT: moment(now)}, [Attr.DELETED_AT])
        values = {":seen_deleted_at": moment(seen.deleted_at)}
        clauses = (IS_DELETED_AS_READ,)
        return self._has_updated(
            seen.queue, opened, clauses, values, mark=(Attr.DELETING_AT, moment(now))
        )

    # -- inside ------------------------------------------------------------------------------------

    def _has_updated(
        self,
        queue: str,
        changed: tuple[str, Mapping[str, Value]],
        clauses: Sequence[str],
        values: Mapping[str, Value],
        *,
        mark: tuple[Attr, Value] | None = None,
    ) -> bool:
        """Whether the update was made; False, and nothing written, when the clauses don't hold.

        An item that bears the `mark` of the update shows that it was made, and only its answer was
        lost.
        """
        try:
            self._update(queue, changed, clauses, values)
        except ConditionFailed as refused:
            self._forget()
            return mark is not None and (refused.row or {}).get(mark[0]) == mark[1]
        return True

    def _update(
        self,
        queue: str,
        changed: tuple[str, Mapping[str, Value]],
        clauses: Sequence[str],
        values: Mapping[str, Value] | None = None,
    ) -> Item:
        item = self._sender.update(
            update_of(self._table, key_of(queue), changed, all_of(*clauses), values or {})
        )
        self._forget()
        return item

    def _forget(self) -> None:
        with self._lock:
            self._snapshot = None
            self._singly.clear()


def _settings(stored: StoredQueue, now: datetime) -> QueueSettings:
    try:
        return stored.settings(now)
    except ConfigInvalid as problem:
        raise _unreadable(problem.message) from None


def _unreadable(problem: str) -> CorruptItem:
    return CorruptItem(
        problem,
        hint="mend or delete its item in the control table, then apply its configuration again",
    )


def _unknown(queue: str, snapshot: _Snapshot) -> QueueNotFound:
    stored = snapshot.stored.get(queue)
    return (
        deleted_queue(stored)
        if stored is not None and stored.is_deleted
        else unknown_queue(queue, snapshot.queues)
    )


def _too_busy(queue: str) -> StoreFailed:
    return StoreFailed(
        f"the configuration of queue {queue} kept changing while it was written",
        may_have_happened=False,
    )
