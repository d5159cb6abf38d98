"""Queue configuration in the control table: one item per queue, all in one partition, so that one
query reads them all.

The invariant: an answer is at most `fresh_for` old, and was read consistently. An item that cannot
be read stops its own queue only.
"""

import math
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
    NEVER_LOOKED_AT,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.schema import QUEUES, Attr, Tables
from rdq_core.stores.dynamodb.sender import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import (
    Item,
    Reader,
    Value,
    compact_json,
    moment,
    number,
    text,
)

FRESH_FOR_SWEEPS: Final = timedelta(seconds=1)
FRESH_FOR_SUBMITS: Final = timedelta(minutes=1)

# Every round that is lost means that another writer has stored a change.
_WRITE_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All queues as they were read at `at`, in monotonic seconds. `broken` has the problem of each
    unreadable one.
    """

    at: float
    stored: Mapping[str, StoredQueue]
    queues: Mapping[str, QueueSettings]
    broken: Mapping[str, str]


class DynamoQueues:
    """A `QueueStore` in the control table. Safe between threads: one of them reads, and the others
    wait for it.

    `settings` and `all` are at most `fresh_for` old, `for_submits` at most `submits_fresh_for`. A
    process that only submits reads the items of its own queues, one each.
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

    # -- effective settings ------------------------------------------------------------------------

    def settings(self, queue: str, *, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """See `QueueSource.settings`. Raises CorruptItem when the queue's item cannot be read."""
        snapshot = self._read()
        if queue in snapshot.queues:
            if definition:
                return snapshot.stored[queue].settings(self._clock.now(), definition)
            return snapshot.queues[queue]
        if queue in snapshot.broken:
            raise _unreadable(snapshot.broken[queue])
        raise _unknown(queue, snapshot)

    def for_submits(self, queue: str) -> QueueSettings:
        """See `QueueSource.for_submits`. Raises CorruptItem as `settings` does."""
        with self._lock:
            at = self._clock.monotonic()
            cached = self._cached(queue, at)
            # A queue that is being deleted is read each time: it may have been declared again.
            if cached is not None and not cached.deleting:
                return cached
            stored = self.stored(queue)
            if stored is not None and not stored.is_deleted:
                settings = _settings(stored, self._clock.now())
                self._singly[queue] = (at, settings)
                return settings
            self._singly.pop(queue, None)
        raise deleted_queue(stored) if stored is not None else _unknown(queue, self._read())

    def all(self) -> Mapping[str, QueueSettings]:
        """See `QueueSource.all`. Queues that cannot be read are left out."""
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

    def _cached(self, queue: str, at: float) -> QueueSettings | None:
        """The newest settings that were read, if they are fresh enough for a submit."""
        read_at, settings = self._singly.get(queue, (-math.inf, None))
        snapshot = self._snapshot
        if snapshot is not None and queue in snapshot.queues and snapshot.at >= read_at:
            read_at, settings = snapshot.at, snapshot.queues[queue]
        return settings if at - read_at < self._submits_fresh_for else None

    def _read(self) -> _Snapshot:
        with self._lock:
            # The age counts from before the read: what is written during it may be missed.
            at = self._clock.monotonic()
            if self._snapshot is None or at - self._snapshot.at >= self._fresh_for:
                self._snapshot = self._take_snapshot(at)
            return self._snapshot

    def _take_snapshot(self, at: float) -> _Snapshot:
        stored: dict[str, StoredQueue] = {}
        queues: dict[str, QueueSettings] = {}
        broken: dict[str, str] = {}
        # Consistent, so that a host never goes back to settings from before an operator's change.
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :queues",
            "ConsistentRead": True,
        }
        items = list(self._sender.query_all(request, {":queues": text(QUEUES)}))
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

    # -- the layers --------------------------------------------------------------------------------

    def stored(self, queue: str) -> StoredQueue | None:
        """See `QueueStore.stored`."""
        item = self._sender.get(self._table, _key(queue))
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
        for _ in range(_WRITE_ROUNDS):
            before = self.stored(queue)
            after = redeclared(
                before, queue, declared, file_defaults, expected_revision=expected_revision
            )
            if self._has_put(before, after):
                return after
        raise _kept_changing(queue)

    def put_owners(self, seen: StoredQueue, owners: tuple[str, ...]) -> bool:
        """See `QueueStore.put_owners`."""
        return self._has_put(seen, owned(seen, owners))

    def put_override(
        self, queue: str, override: Override | None, *, expected_revision: int
    ) -> StoredQueue:
        """See `QueueStore.put_override`."""
        for _ in range(_WRITE_ROUNDS):
            before = self._existing(queue)
            after = overridden(before, override, expected_revision=expected_revision)
            if self._has_put(before, after):
                return after
        raise _kept_changing(queue)

    def pause(
        self, queue: str, *, paused: bool, now: datetime, reason: str | None = None
    ) -> StoredQueue:
        """See `QueueStore.pause`."""
        # Without a revision: a pause is no layer, and holds whatever is declared meanwhile.
        if not paused:
            changed = change({}, _PAUSE)
        elif reason is None:
            changed = change({Attr.PAUSED_AT: moment(now)}, (Attr.PAUSE_REASON,))
        else:
            changed = change({Attr.PAUSED_AT: moment(now), Attr.PAUSE_REASON: text(reason)})
        try:
            item = self._update(queue, changed, (IS_CONFIGURED, IS_NOT_DELETED))
        except ConditionFailed:
            raise self._not_found(queue) from None
        return read_queue(item)

    def _existing(self, queue: str) -> StoredQueue:
        before = self.stored(queue)
        if before is None or before.is_deleted:
            raise self._not_found(queue)
        return before

    def _not_found(self, queue: str) -> QueueNotFound:
        # The error suggests similar names, which may have been configured since the last read.
        self._drop_caches()
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
        return self._has_updated(after.queue, _layers_change(before, after), clauses, seen)

    # -- deletion ----------------------------------------------------------------------------------

    def begin_delete(self, queue: str, *, now: datetime) -> StoredQueue:
        """See `QueueStore.begin_delete`."""
        # A look at an earlier deletion of this queue says nothing about this one.
        began = change({Attr.DELETING_AT: moment(now)}, [Attr.LOOKED_AT])
        try:
            return read_queue(self._update(queue, began, (IS_CONFIGURED, IS_NOT_DELETING)))
        except ConditionFailed:
            return self._existing(queue)

    def note_look(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.note_look`."""
        looked = change({Attr.LOOKED_AT: moment(now)})
        # IS_CONFIGURED as well, or the update would create the item of a queue that is gone.
        if seen.looked_at is None:
            return self._has_updated(seen.queue, looked, (IS_CONFIGURED, NEVER_LOOKED_AT), {})
        values = {":seen_looked_at": moment(seen.looked_at)}
        return self._has_updated(seen.queue, looked, (LOOKED_AT_AS_READ,), values)

    def end_delete(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.end_delete`."""
        if seen.deleting_at is None:
            return False
        ended = change({Attr.DELETED_AT: moment(now), Attr.LOOKED_AT: moment(now)})
        values = {":seen_deleting_at": moment(seen.deleting_at)}
        clauses = (IS_DELETING_AS_READ, IS_NOT_DELETED)
        mark = (Attr.DELETED_AT, moment(now))
        return self._has_updated(seen.queue, ended, clauses, values, mark=mark)

    def reopen(self, seen: StoredQueue, *, now: datetime) -> bool:
        """See `QueueStore.reopen`."""
        if seen.deleted_at is None:
            return False
        opened = change({Attr.DELETING_AT: moment(now)}, [Attr.DELETED_AT])
        values = {":seen_deleted_at": moment(seen.deleted_at)}
        mark = (Attr.DELETING_AT, moment(now))
        return self._has_updated(seen.queue, opened, (IS_DELETED_AS_READ,), values, mark=mark)

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
        """Whether the update was made; False, and nothing written, when the clauses do not hold.

        An item that bears the `mark` of the update proves that an earlier attempt made it.
        """
        try:
            self._update(queue, changed, clauses, values)
        except ConditionFailed as refused:
            self._drop_caches()
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
            update_of(self._table, _key(queue), changed, all_of(*clauses), values or {})
        )
        self._drop_caches()
        return item

    def _drop_caches(self) -> None:
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
    if stored is not None and stored.is_deleted:
        return deleted_queue(stored)
    return unknown_queue(queue, snapshot.queues)


def _kept_changing(queue: str) -> StoreFailed:
    return StoreFailed(
        f"the configuration of queue {queue} kept changing while it was written",
        may_have_happened=False,
    )


# -- a queue as an item ----------------------------------------------------------------------------

# An item has at most 400 KB ("Quotas in Amazon DynamoDB"); names and state need the rest.
_MAX_LAYERS_BYTES: Final = 300 * limits.KIB
_LAYERS: Final = (
    Attr.DECLARED,
    Attr.FILE_DEFAULTS,
    Attr.REVISION,
    Attr.OVERRIDE,
    Attr.OVERRIDE_REASON,
    Attr.OVERRIDE_ENDS_AT,
    Attr.OVERRIDE_REVISION,
    Attr.SHARDS_EVER,
    Attr.OWNERS,
)
_PAUSE: Final = (Attr.PAUSED_AT, Attr.PAUSE_REASON)
_DELETION: Final = (Attr.DELETING_AT, Attr.DELETED_AT, Attr.LOOKED_AT)


def unused_key() -> Item:
    """A key of the control table that has no item, for requests that only need an answer."""
    return _key("-")


def _key(queue: str) -> Item:
    return {Attr.PK: text(QUEUES), Attr.SK: text(queue)}


def _layers_change(before: StoredQueue | None, after: StoredQueue) -> tuple[str, dict[str, Value]]:
    """The update that stores the layers and leaves everything else as it is.

    A queue that is not being deleted any more loses its deletion, and one declared again from a
    tombstone the old pause. Nothing else ends a deletion or a pause: either may have begun since
    `before` was read.
    """
    layers = _layers(after)
    removes = [attr for attr in _LAYERS if attr not in layers]
    if before is not None and before.is_leaving and not after.is_leaving:
        removes += [*_DELETION, *(_PAUSE if before.is_deleted else ())]
    return change(layers, removes)


def _layers(queue: StoredQueue) -> dict[Attr, Value]:
    layers = {
        Attr.DECLARED: _json(queue.declared),
        Attr.FILE_DEFAULTS: _json(queue.file_defaults),
        Attr.REVISION: number(queue.revision),
        Attr.OVERRIDE_REVISION: number(queue.override_revision),
        Attr.SHARDS_EVER: number(queue.shards_ever),
    }
    if queue.owners:
        layers[Attr.OWNERS] = text(" ".join(queue.owners))
    if queue.override is not None:
        layers[Attr.OVERRIDE] = _json(queue.override.layer)
        layers[Attr.OVERRIDE_REASON] = text(queue.override.reason)
        if queue.override.expires_at is not None:
            layers[Attr.OVERRIDE_ENDS_AT] = moment(queue.override.expires_at)
    size = sum(len(value["S"].encode()) for value in layers.values() if "S" in value)
    if size > _MAX_LAYERS_BYTES:
        raise ConfigInvalid(
            f"queues.{queue.queue}",
            f"is {size} bytes in all; accepted: at most {_MAX_LAYERS_BYTES}",
        )
    return layers


def _json(layer: Mapping[str, Any]) -> Value:
    return text(compact_json(layer).decode())


def read_queue(item: Mapping[str, Any]) -> StoredQueue:
    """A queue's layers from their item. Raises CorruptItem."""
    queue = item[Attr.SK]["S"]
    reader = Reader(item, f"the configuration of queue {queue}")
    return StoredQueue(
        queue=queue,
        declared=_layer(reader, Attr.DECLARED),
        file_defaults=_layer(reader, Attr.FILE_DEFAULTS),
        revision=reader.number(Attr.REVISION),
        override=_override(reader),
        override_revision=reader.maybe_number(Attr.OVERRIDE_REVISION) or 0,
        paused_at=reader.maybe_moment(Attr.PAUSED_AT),
        pause_reason=reader.maybe_text(Attr.PAUSE_REASON),
        shards_ever=reader.maybe_number(Attr.SHARDS_EVER) or 0,
        deleting_at=reader.maybe_moment(Attr.DELETING_AT),
        deleted_at=reader.maybe_moment(Attr.DELETED_AT),
        looked_at=reader.maybe_moment(Attr.LOOKED_AT),
        owners=tuple((reader.maybe_text(Attr.OWNERS) or "").split()),
    )


def _override(reader: Reader) -> Override | None:
    if reader.maybe_text(Attr.OVERRIDE) is None:
        return None
    return Override(
        layer=_layer(reader, Attr.OVERRIDE),
        reason=reader.maybe_text(Attr.OVERRIDE_REASON) or "",
        expires_at=reader.maybe_moment(Attr.OVERRIDE_ENDS_AT),
    )


def _layer(reader: Reader, name: Attr) -> Mapping[str, Any]:
    layer = reader.json_of(name, reader.text(name).encode("utf-8", "surrogatepass"))
    if not isinstance(layer, dict):
        raise reader.corrupt(f"{name} is no mapping")
    return layer
