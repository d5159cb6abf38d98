"""The kick function: work that becomes due before the next scheduled sweep starts one, if none is
awake.

    a row turns PENDING ── due within a minute, of a queue that the sweeper serves ── book ──► start
                                                                                    └─ a sweep is awake: nothing

The invariant: each row was committed before an awake sweep's last look, or a sweep was started
after it. A booking whose start is refused is taken back, and the batch fails, to be delivered
again.
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
"""Who removes a row whose TTL has passed, as the stream has it."""
SOON: Final = timedelta(seconds=65)
"""What is due later is found by the next scheduled sweep: one starts each minute, or a little late.
"""


class KickFunction:
    """Starts sweeps, and cleans up, as the stream of the tasks table tells it."""

    def __init__(self, host: FunctionHost) -> None:
        self._host = host
        self._parts = host.parts

    def kick(self, event: object) -> list[str]:
        """Start one sweep for the queues that have new work and no sweep awake; which they are.

        Raises whatever refused the start: the batch must be delivered again. Records that come
        twice or late do no harm. Raises InputInvalid for what is no batch of a stream.
        """
        records = _records(event)
        served = self._served()
        horizon = to_millis(self._parts.clock.now() + SOON)
        queues = dict.fromkeys(
            queue for record in records if (queue := _queue_with_work(record, horizon)) in served
        )
        booked: list[str] = []
        try:
            for queue in queues:
                booked.append(queue)  # what may be booked when an error comes has to be known
                if not self._books(queue):
                    booked.pop()
            if booked:
                self._host.start(self._sweeper, {"queues": booked})
        except BaseException:
            self._take_back(booked)
            raise
        return booked

    def clean_up(self, event: object) -> None:
        """Delete what removed and replaced rows leave behind, and tell of dead tasks whose
        retention has ended.

        A record that comes twice is told twice. Raises StoreFailed: deliver the batch again. Raises
        InputInvalid for what is no batch of a stream.
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
            name for name, each in self._parts.queues.all().items() if _is_the_sweepers(each)
        )

    def _books(self, queue: str) -> bool:
        now: datetime = self._parts.clock.now()
        return self._parts.reservations.acquire(queue, now=now, until=now + AWAKE_FOR)

    def _take_back(self, booked: Iterable[str]) -> None:
        """Clear the bookings, or wait until they have ended: the next delivery would take them for
        a sweep's word.
        """
        standing = [queue for queue in booked if not self._is_taken_back(queue)]
        if standing:
            self._parts.idle.wait(threading.Event(), AWAKE_FOR / timedelta(seconds=1))

    def _is_taken_back(self, queue: str) -> bool:
        try:
            self._parts.reservations.release(queue)
        except StoreFailed as failed:
            self._parts.on_error(failed, where=f"taking back the start of a sweep of queue {queue}")
            return False
        return True


def _records(event: object) -> list[Mapping[str, Any]]:
    """The records of a stream's batch. Their images are items of DynamoDB's, where they have any."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list) or not all(map(_is_of_a_stream, records)):
        raise InputInvalid(
            "event", "is no batch of a DynamoDB stream", hint="map the tasks table's stream"
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
    """What is to be told of a dead task that nobody has sent back: DynamoDB has removed it, or a
    submit replaced it.
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


def _is_the_sweepers(settings: QueueSettings) -> bool:
    """A queue for any host is the sweeper's where it names functions; what workers alone can run is
    theirs.
    """
    is_shared = settings.host is Host.ANY and bool(settings.handlers)
    return not settings.paused and (settings.host is Host.SWEEPER or is_shared)


def _queue_with_work(record: Mapping[str, Any], horizon: int) -> str | None:
    """The queue of a row that has turned PENDING and is due by then; None for any other record."""
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
