"""Queue configuration in the control table: one item a queue, all in one partition, so that one query reads them all.

The invariant: whoever asks is answered with what was stored at most `fresh_for` ago, read consistently; and an item
that nobody can read stops its own queue only.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import Override, StoredQueue, overridden, redeclared, unknown_queue
from rdq_core.domain import limits
from rdq_core.engine.ports import Clock, Jitter, Sleeper
from rdq_core.errors import ConfigInvalid, CorruptItem, StoreFailed
from rdq_core.stores.dynamodb.expressions import (
    IS_CONFIGURED,
    IS_DECLARED_AS_READ,
    IS_OVERRIDDEN_AS_READ,
    IS_UNCONFIGURED,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.schema import QUEUES, Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import Item, Reader, Value, compact_json, moment, number, text

FRESH_FOR_SWEEPS: Final = timedelta(seconds=1)
FRESH_FOR_SUBMITS: Final = timedelta(minutes=1)

_MAX_LAYERS_BYTES: Final = 300 * limits.KIB
_MAX_TRIES: Final = 8
_LAYERS: Final = (
    Attr.DECLARED,
    Attr.FILE_DEFAULTS,
    Attr.REVISION,
    Attr.OVERRIDE,
    Attr.OVERRIDE_REASON,
    Attr.OVERRIDE_ENDS_AT,
    Attr.OVERRIDE_REVISION,
    Attr.SHARDS_EVER,
)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Every queue as it was read at `at`, in monotonic seconds; of an unreadable one, what is wrong with it."""

    at: float
    stored: Mapping[str, StoredQueue]
    queues: Mapping[str, QueueSettings]
    broken: Mapping[str, str]


class DynamoQueues:
    """A `QueueStore` in the control table. Safe between threads: one of them reads, the others wait for it.

    `settings` and `all` answer from what was read at most `fresh_for` ago.
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
    ) -> None:
        self._sender = Sender(client, jitter=jitter, sleeper=sleeper)
        self._table = tables.control
        self._clock = clock
        self._fresh_for = fresh_for.total_seconds()
        self._lock = threading.Lock()
        self._snapshot: _Snapshot | None = None

    # -- what is in force -----------------------------------------------------------------------------------------

    def settings(self, queue: str, *, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """See `QueueSource.settings`. Raises CorruptItem when what is stored for the queue can't be read."""
        snapshot = self._read()
        if queue in snapshot.queues:
            plain = snapshot.queues[queue]
            return snapshot.stored[queue].settings(self._clock.now(), definition) if definition else plain
        if queue in snapshot.broken:
            raise CorruptItem(
                snapshot.broken[queue],
                hint="mend or delete its item in the control table, then apply its configuration again",
            )
        raise unknown_queue(queue, snapshot.queues)

    def all(self) -> Mapping[str, QueueSettings]:
        """See `QueueSource.all`. Queues that can't be read are left out."""
        return self._read().queues

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
                stored[queue] = _stored(item)
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

    # -- the layers -------------------------------------------------------------------------------------------------

    def stored(self, queue: str) -> StoredQueue | None:
        """See `QueueStore.stored`."""
        item = self._sender.get(self._table, _key(queue))
        return None if item is None else _stored(item)

    def put_declared(
        self, queue: str, declared: Mapping[str, Any], file_defaults: Mapping[str, Any], *, expected_revision: int
    ) -> StoredQueue:
        """See `QueueStore.put_declared`."""
        limits.check_name("queue", queue)
        for _ in range(_MAX_TRIES):
            before = self.stored(queue)
            after = redeclared(before, queue, declared, file_defaults, expected_revision=expected_revision)
            if self._has_put(before, after):
                return after
        raise _too_busy(queue)

    def put_override(self, queue: str, override: Override | None, *, expected_revision: int) -> StoredQueue:
        """See `QueueStore.put_override`."""
        for _ in range(_MAX_TRIES):
            before = self._existing(queue)
            after = overridden(before, override, expected_revision=expected_revision)
            if self._has_put(before, after):
                return after
        raise _too_busy(queue)

    def pause(self, queue: str, *, paused: bool, now: datetime) -> StoredQueue:
        """See `QueueStore.pause`."""
        changed = change({Attr.PAUSED_AT: moment(now)}) if paused else change({}, [Attr.PAUSED_AT])
        try:
            item = self._sender.update(update_of(self._table, _key(queue), changed, all_of(IS_CONFIGURED), {}))
        except ConditionFailed:
            raise unknown_queue(queue, self.all()) from None
        self._forget()
        return _stored(item)

    def _existing(self, queue: str) -> StoredQueue:
        before = self.stored(queue)
        if before is None:
            raise unknown_queue(queue, self.all())
        return before

    def _has_put(self, before: StoredQueue | None, after: StoredQueue) -> bool:
        """Whether the layers are stored as in `after`; False, and nothing written, when `before` is outdated."""
        if after is before:
            return True
        seen = {":seen_revision": number(0), ":seen_override_revision": number(0)}
        condition = all_of(IS_UNCONFIGURED)
        if before is not None:
            seen = {
                ":seen_revision": number(before.revision),
                ":seen_override_revision": number(before.override_revision),
            }
            condition = all_of(IS_DECLARED_AS_READ, IS_OVERRIDDEN_AS_READ)
        try:
            self._sender.update(update_of(self._table, _key(after.queue), _change(after), condition, seen))
        except ConditionFailed:
            return False
        self._forget()
        return True

    def _forget(self) -> None:
        with self._lock:
            self._snapshot = None


def _too_busy(queue: str) -> StoreFailed:
    return StoreFailed(
        f"the configuration of queue {queue} kept changing while it was written", may_have_happened=False
    )


def any_key() -> Item:
    """A key of the control table under which nothing is, for those who only want an answer."""
    return _key("-")


def _key(queue: str) -> Item:
    return {Attr.PK: text(QUEUES), Attr.SK: text(queue)}


def _change(queue: StoredQueue) -> tuple[str, dict[str, Value]]:
    """The update that stores the layers and leaves everything else, the pause included."""
    layers = _layers(queue)
    return change(layers, [attr for attr in _LAYERS if attr not in layers])


def _layers(queue: StoredQueue) -> dict[Attr, Value]:
    layers = {
        Attr.DECLARED: _json(queue.declared),
        Attr.FILE_DEFAULTS: _json(queue.file_defaults),
        Attr.REVISION: number(queue.revision),
        Attr.OVERRIDE_REVISION: number(queue.override_revision),
        Attr.SHARDS_EVER: number(queue.shards_ever),
    }
    if queue.override is not None:
        layers |= {Attr.OVERRIDE: _json(queue.override.layer), Attr.OVERRIDE_REASON: text(queue.override.reason)}
        if queue.override.expires_at is not None:
            layers[Attr.OVERRIDE_ENDS_AT] = moment(queue.override.expires_at)
    size = sum(len(value["S"].encode()) for value in layers.values() if "S" in value)
    if size > _MAX_LAYERS_BYTES:
        raise ConfigInvalid(f"queues.{queue.queue}", f"is {size} bytes in all; accepted: at most {_MAX_LAYERS_BYTES}")
    return layers


def _json(layer: Mapping[str, Any]) -> Value:
    return text(compact_json(layer).decode())


def _stored(item: Mapping[str, Any]) -> StoredQueue:
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
        shards_ever=reader.maybe_number(Attr.SHARDS_EVER) or 0,
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
