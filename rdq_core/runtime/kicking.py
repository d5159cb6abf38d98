"""The kick function: starts a sweep for work that becomes due before the next scheduled one.

    a row turns PENDING, due within a minute, in a queue that the sweeper serves
      └─ acquire the queue's reservation ──┬─ acquired ──► start a sweep
                                           └─ a sweep is announced, or just started ──► nothing

The invariant: each row is committed before an announced sweep looks for remaining work, or a sweep
is started after it. If the start is refused, the reservation is released and the batch fails, so
that the stream delivers it again.
"""

import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.config.settings import Host, QueueSettings
from rdq_core.domain.task import Status
from rdq_core.domain.times import to_millis
from rdq_core.engine.events import Event, EventName
from rdq_core.engine.presence import AWAKE_FOR
from rdq_core.errors import ConfigInvalid, InputInvalid, StoreFailed
from rdq_core.runtime.hosting import FunctionHost
from rdq_core.stores.dynamodb.schema import STATE, Attr, queue_of
from rdq_core.stores.dynamodb.values import text_of

SWEEPER: Final = "RDQ_SWEEPER_FUNCTION"
"""The environment variable that names the sweeper function."""
_TIME_TO_LIVE: Final = "dynamodb.amazonaws.com"
"""The principal of a removal by TTL in a stream record's `userIdentity`, see "Time to Live and
DynamoDB Streams" in DynamoDB's documentation.
"""
SOON: Final = timedelta(seconds=65)
"""How far ahead a kick looks. Later work is left to the schedule, which starts a sweep within a
minute or slightly more.
"""


class KickFunction:
    """Handles batches of the tasks table's stream: starts sweeps, and cleans up."""

    def __init__(self, host: FunctionHost) -> None:
        self._host = host
        self._parts = host.parts

    def kick(self, event: object) -> list[str]:
        """Start one sweep for the queues with new work and no announced sweep; return them.

        Raises the error that refused the start, so that the batch is delivered again. Duplicate
        and late records do no harm. Raises InputInvalid unless the event is a stream batch.
        """
        records = _records(event)
        served = self._served()
        horizon = to_millis(self._parts.clock.now() + SOON)
        queues = dict.fromkeys(
            queue for record in records if (queue := _queue_with_work(record, horizon)) in served
        )
        acquired: list[str] = []
        try:
            for queue in queues:
                # Noted before the write: if its answer is lost, it must still be released.
                acquired.append(queue)
                if not self._acquire(queue):
                    acquired.pop()
            if acquired:
                self._host.start(self._sweeper, {"queues": acquired})
        except BaseException:
            self._release(acquired)
            raise
        return acquired

    def clean_up(self, event: object) -> None:
        """Delete orphans of removed and replaced rows, and report dead tasks that have expired.

        A duplicate record emits its event twice. Raises StoreFailed: deliver the batch again.
        Raises InputInvalid unless the event is a stream batch.
        """
        for record in _records(event):
            self._parts.store.clean_up(record)
            if (expired := _expired(record)) is not None:
                self._parts.events.emit(expired)

    @property
    def _sweeper(self) -> str:
        if not (name := self._host.environ.get(SWEEPER)):
            raise ConfigInvalid(
                SWEEPER, "is not set; it names the function whose sweeps are started"
            )
        return name

    def _served(self) -> frozenset[str]:
        return frozenset(
            name for name, each in self._parts.queues.all().items() if _is_served_by_sweeper(each)
        )

    def _acquire(self, queue: str) -> bool:
        now: datetime = self._parts.clock.now()
        return self._parts.reservations.acquire(queue, now=now, until=now + AWAKE_FOR)

    def _release(self, acquired: Iterable[str]) -> None:
        """Release the reservations, or wait until they expire.

        The next delivery of the batch would mistake them for an announced sweep.
        """
        standing = [queue for queue in acquired if not self._is_released(queue)]
        if standing:
            self._parts.idle.wait(threading.Event(), AWAKE_FOR / timedelta(seconds=1))

    def _is_released(self, queue: str) -> bool:
        try:
            self._parts.reservations.release(queue)
        except StoreFailed as failed:
            self._parts.on_error(failed, where=f"releasing the reservation of queue {queue}")
            return False
        return True


def _records(event: object) -> list[Mapping[str, Any]]:
    """The records of a stream batch, with their images in DynamoDB's item form."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list) or not all(map(_is_of_a_stream, records)):
        raise InputInvalid(
            "event", "is not a batch of a DynamoDB stream", hint="map the tasks table's stream"
        )
    return records


def _is_of_a_stream(record: object) -> bool:
    images = record.get("dynamodb", {}) if isinstance(record, Mapping) else None
    return isinstance(images, Mapping) and all(
        _is_item(images.get(name) or {}) for name in ("OldImage", "NewImage")
    )


def _is_item(image: object) -> bool:
    return isinstance(image, Mapping) and all(
        isinstance(value, Mapping) for value in image.values()
    )


def _expired(record: Mapping[str, Any]) -> Event | None:
    """The event about a dead task whose retention ended; None for any other record.

    TTL removed its row, or a submit of the same id replaced it.
    """
    images = record.get("dynamodb", {})
    old, new = images.get("OldImage") or {}, images.get("NewImage") or {}
    if text_of(old, Attr.KIND) != STATE or text_of(old, Attr.STATUS) != Status.DEAD:
        return None
    by = record.get("userIdentity")
    is_removed = not new and isinstance(by, Mapping) and by.get("principalId") == _TIME_TO_LIVE
    if not is_removed and text_of(new, Attr.LIFE) in (None, text_of(old, Attr.LIFE)):
        return None
    return Event(
        name=EventName.DEAD_EXPIRED,
        task_id=text_of(old, Attr.TASK_ID) or "",
        queue=queue_of(text_of(old, Attr.QUEUE_SHARD) or ""),
        handler_ref=text_of(old, Attr.HANDLER_REF) or "",
        code=text_of(old, Attr.FAILURE),
    )


def _is_served_by_sweeper(settings: QueueSettings) -> bool:
    """Whether the sweeper serves the queue: with host `any`, if the queue names functions."""
    is_shared = settings.host is Host.ANY and bool(settings.handlers)
    return not settings.paused and (settings.host is Host.SWEEPER or is_shared)


def _queue_with_work(record: Mapping[str, Any], horizon: int) -> str | None:
    """The queue of a row that turned PENDING and is due by `horizon`; None for any other record."""
    images = record.get("dynamodb", {})
    old, new = images.get("OldImage") or {}, images.get("NewImage") or {}
    if text_of(new, Attr.KIND) != STATE or text_of(new, Attr.STATUS) != Status.PENDING:
        return None
    due_at = _due_at(new)
    if due_at is None or due_at > horizon or (_is_waiting(old) and _due_at(old) == due_at):
        return None
    return queue_of(text_of(new, Attr.QUEUE_SHARD) or "")


def _is_waiting(image: Mapping[str, Any]) -> bool:
    return text_of(image, Attr.STATUS) == Status.PENDING


def _due_at(image: Mapping[str, Any]) -> int | None:
    digits = image.get(Attr.DUE_AT, {}).get("N", "")
    return int(digits) if isinstance(digits, str) and digits.isdecimal() else None
