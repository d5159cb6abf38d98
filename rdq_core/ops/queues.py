"""Queues as operators look at them: configuration, differences from a file, and how full they are.

Nothing here changes anything: `queue_edits` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from rdq_core.config.document import Document
from rdq_core.config.ladder import Rung, ladder
from rdq_core.config.merge import changes
from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import Override, StoredQueue, deleted_queue, redeclared, unknown_queue
from rdq_core.domain.times import format_time, span_millis
from rdq_core.engine.ports import QueueStore
from rdq_core.errors import ConfigInvalid
from rdq_core.ops.parts import OperatorParts

_UNSERVED_AFTER: Final = timedelta(minutes=5)


class Change(StrEnum):
    """The effect on a queue of applying a file."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    RESTORED = "restored"
    """It was being deleted, and stays after all."""
    CONFLICT = "conflict"
    """Another operator or deploy wrote it at the same time, and their write stays. Compare, and
    apply again.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one queue of a file differs from what is declared: by key, the stored value and the
    file's.

    Keys that start with `defaults.` belong to the file's defaults. None stands for an absent key.
    """

    queue: str
    result: Change
    revision: int
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    is_override_suspended: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of one line of the answer."""
        shape: dict[str, Any] = {
            "queue": self.queue,
            "result": str(self.result),
            "revision": self.revision,
            "changes": [
                {"key": key, "stored": old, "file": new} for key, (old, new) in self.changes.items()
            ],
        }
        return shape | ({"override_suspended": True} if self.is_override_suspended else {})


def difference(stored: StoredQueue | None, queue: str, document: Document) -> Difference:
    """What applying the file would change of one of its queues."""
    declared, defaults = document.queues[queue], document.defaults
    exists = stored is not None and not stored.is_deleted
    revision = 0 if stored is None or not exists else stored.revision
    after = redeclared(
        stored,
        queue,
        declared,
        defaults,
        expected_revision=0 if stored is None else stored.revision,
    )
    before = (
        {**stored.declared, "defaults": stored.file_defaults}
        if stored is not None and exists
        else {}
    )
    return Difference(
        queue=queue,
        result=_result(stored, after),
        revision=revision,
        changes=changes(before, {**declared, "defaults": defaults}),
        is_override_suspended=after.is_override_suspended(),
    )


def _result(before: StoredQueue | None, after: StoredQueue) -> Change:
    if before is None or before.is_deleted:
        return Change.CREATED
    if before.is_leaving:
        return Change.RESTORED
    return Change.UNCHANGED if after is before else Change.CHANGED


def checked(document: Document) -> Document:
    """The document. Raises ConfigInvalid when it declares no queue; the rest is checked already."""
    if not document.queues:
        raise ConfigInvalid(
            "queues", "the file names no queue; accepted: the names of queues, each with its keys"
        )
    return document


class QueueReader:
    """Queries about queues."""

    def __init__(self, parts: OperatorParts) -> None:
        self._queues = parts.queues
        self._store = parts.store
        self._clock = parts.clock

    def diff(self, document: Document) -> tuple[Difference, ...]:
        """How each queue that a file names differs from what is declared."""
        return tuple(
            difference(self._queues.stored(queue), queue, document)
            for queue in checked(document).queues
        )

    def get(self, queue: str) -> dict[str, Any]:
        """The layers of a queue and its effective settings. Raises QueueNotFound."""
        return queue_view(existing(self._queues, queue), self._clock.now())

    def list(self) -> dict[str, Any]:
        """Every queue that can be read, by name, with its owner and main settings."""
        settings, stored = self._queues.all(), self._queues.all_stored()
        now = self._clock.now()
        items = [_summary(settings[name], stored[name], now) for name in sorted(settings)]
        return {"items": items, "next_cursor": None}

    def status(self, queue: str | None = None) -> dict[str, Any]:
        """The state of one queue, or of all by name: `stats`, and what operators have changed.

        `unserved`: a task has been due for five minutes, none runs, and the queue is not paused.
        Raises QueueNotFound.
        """
        names = [queue] if queue is not None else sorted(self._queues.all())
        return {"items": [self._state(name) for name in names], "next_cursor": None}

    def _state(self, queue: str) -> dict[str, Any]:
        stats, stored = self.stats(queue), self._queues.all_stored()[queue]
        settings = self._queues.settings(queue)
        waited = stats["oldest_pending_age_seconds"] or 0.0
        idle = not stats["in_flight"] and not settings.paused
        return {
            **stats,
            "pause_reason": stored.pause_reason,
            "override": _override_state(stored, self._clock.now()),
            "deleting": settings.deleting,
            "unserved": idle and waited >= _UNSERVED_AFTER.total_seconds(),
            "host": str(settings.host),
            "owner": settings.owner,
            "runbook": settings.runbook,
        }

    def ladder(self, queue: str) -> dict[str, Any]:
        """The time of each attempt of a task that is due now and always fails, and when it dies.

        Raises QueueNotFound.
        """
        steps = ladder(existing(self._queues, queue).settings(self._clock.now()))
        last = _rung(steps.last)
        del last["attempt"]
        return {
            "queue": queue,
            "attempts": [_rung(rung) for rung in steps.rungs],
            "dies": {**last, "at_worst_ms": span_millis(steps.dies_at_worst)},
        }

    def stats(self, queue: str) -> dict[str, Any]:
        """The number of tasks that wait, run and are dead, and how long the oldest has been due.

        `oldest_pending_age_seconds` is 0 while no task is due yet, None while none waits. Raises
        QueueNotFound.
        """
        settings = self._queues.settings(queue)
        counts = self._store.counts(queue)
        return {
            "queue": queue,
            "pending": counts.pending,
            "in_flight": counts.in_flight,
            "dead": counts.dead,
            "oldest_due_at": time_view(counts.oldest_due_at),
            "oldest_pending_age_seconds": _age(counts.oldest_due_at, self._clock.now()),
            "paused": settings.paused,
            "exact": counts.exact,
        }


def existing(queues: QueueStore, queue: str) -> StoredQueue:
    """The layers of a queue that is configured. Raises QueueNotFound."""
    stored = queues.stored(queue)
    if stored is None:
        raise unknown_queue(queue, queues.all())
    if stored.is_deleted:
        raise deleted_queue(stored)
    return stored


def queue_view(stored: StoredQueue, now: datetime) -> dict[str, Any]:
    """The JSON shape of a queue's layers and its effective settings."""
    return {
        "queue": stored.queue,
        "revision": stored.revision,
        "declared": stored.declared,
        "file_defaults": stored.file_defaults,
        "override": override_view(stored, now),
        "paused": stored.paused_at is not None,
        "paused_at": time_view(stored.paused_at),
        "pause_reason": stored.pause_reason,
        "deleting_at": time_view(stored.deleting_at),
        "shards_ever": stored.shards_ever,
        "effective": stored.settings(now).to_plain(),
    }


def override_view(stored: StoredQueue, now: datetime) -> dict[str, Any] | None:
    """The JSON shape of a queue's override; None without one."""
    override = stored.override
    if override is None:
        return None
    return {
        "revision": stored.override_revision,
        "layer": override.layer,
        "reason": override.reason,
        "expires_at": time_view(override.expires_at),
        "in_force": not override.is_over(now) and not stored.is_override_suspended(),
        "suspended": not override.is_over(now) and stored.is_override_suspended(),
    }


def _summary(settings: QueueSettings, stored: StoredQueue, now: datetime) -> dict[str, Any]:
    return {
        "queue": settings.queue,
        "owner": settings.owner,
        "runbook": settings.runbook,
        "revision": settings.revision,
        "paused": settings.paused,
        "deleting": settings.deleting,
        "override": _override_state(stored, now),
        "host": str(settings.host),
        "max_attempts": settings.retry.max_attempts,
        "index_shards": settings.index_shards,
    }


def _override_state(stored: StoredQueue, now: datetime) -> str | None:
    override: Override | None = stored.override
    if override is None or override.is_over(now):
        return None
    return "suspended" if stored.is_override_suspended() else "in_force"


def _rung(rung: Rung) -> dict[str, Any]:
    offsets: dict[str, timedelta] = {
        "earliest": rung.earliest,
        "middle": rung.middle,
        "latest": rung.latest,
    }
    return {"attempt": rung.attempt} | {
        f"{name}_ms": span_millis(offset) for name, offset in offsets.items()
    }


def _age(oldest_due_at: datetime | None, now: datetime) -> float | None:
    return None if oldest_due_at is None else max((now - oldest_due_at).total_seconds(), 0.0)


def time_view(moment: datetime | None) -> str | None:
    """The JSON shape of a time; None stays None."""
    return None if moment is None else format_time(moment)
