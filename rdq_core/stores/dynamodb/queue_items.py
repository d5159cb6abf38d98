"""A queue's configuration as an item of the control table, and back."""

from collections.abc import Mapping
from typing import Any, Final

from rdq_core.config.stored import Override, StoredQueue
from rdq_core.domain import limits
from rdq_core.errors import ConfigInvalid
from rdq_core.stores.dynamodb.expressions import change
from rdq_core.stores.dynamodb.schema import QUEUES, Attr
from rdq_core.stores.dynamodb.values import Item, Reader, Value, compact_json, moment, number, text

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


def any_key() -> Item:
    """A key of the control table under which nothing is, for those who only want an answer."""
    return key_of("-")


def key_of(queue: str) -> Item:
    """Where a queue's configuration is."""
    return {Attr.PK: text(QUEUES), Attr.SK: text(queue)}


def layers_change(before: StoredQueue | None, after: StoredQueue) -> tuple[str, dict[str, Value]]:
    """The update that stores the layers and leaves everything else as it is.

    A queue that isn't leaving any more loses its deletion, and one made of a tombstone the old
    pause. Nothing else ends a deletion or a pause: they may have begun since `before` was read.
    """
    layers = _layers(after)
    gone = [attr for attr in _LAYERS if attr not in layers]
    if before is not None and before.is_leaving and not after.is_leaving:
        gone += [*_DELETION, *(_PAUSE if before.is_deleted else ())]
    return change(layers, gone)


def pause_change(*, paused: bool, now: Value, reason: str | None) -> tuple[str, dict[str, Value]]:
    """The update that pauses or resumes."""
    if not paused:
        return change({}, _PAUSE)
    return change(
        {Attr.PAUSED_AT: now} | ({} if reason is None else {Attr.PAUSE_REASON: text(reason)}),
        () if reason else (Attr.PAUSE_REASON,),
    )


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
        layers |= {
            Attr.OVERRIDE: _json(queue.override.layer),
            Attr.OVERRIDE_REASON: text(queue.override.reason),
        }
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
    """A queue's layers out of their item. Raises CorruptItem."""
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
