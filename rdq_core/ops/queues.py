"""What operators and deploys do with queue configuration: apply a file, look at what is in force, count.

The invariant: a file is checked whole before the first of its queues is written, and queues that it does not name stay
as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from rdq_core.config.document import Document
from rdq_core.config.settings import QueueSettings
from rdq_core.config.stored import Override, StoredQueue, unknown_queue
from rdq_core.domain.times import format_time
from rdq_core.engine.ports import Clock, QueueStore, TaskStore
from rdq_core.errors import ConfigConflict, RdqError


class Change(StrEnum):
    """What applying a file did to a queue."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"
    """Somebody else wrote it at the same time, and theirs stays. Compare, and apply again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of one queue of a file. `revision` is the declared layer's now; `error` is a conflict's."""

    queue: str
    result: Change
    revision: int
    is_override_suspended: bool = False
    error: RdqError | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of one line of the answer."""
        shape = {"queue": self.queue, "result": str(self.result), "revision": self.revision}
        if self.is_override_suspended:
            shape["override_suspended"] = True
        return shape if self.error is None else shape | {"error": self.error.as_dict()}


class QueueDesk:
    """Operator requests about queues."""

    def __init__(self, queues: QueueStore, store: TaskStore, *, clock: Clock) -> None:
        self._queues = queues
        self._store = store
        self._clock = clock

    def apply(self, document: Document) -> tuple[Applied, ...]:
        """Declare what a file says, queue by queue, in its order. Applying it again changes nothing.

        A queue that can't be read raises CorruptItem before anything is written. One that somebody else is writing is
        reported as a conflict, and the others are applied all the same.
        """
        before = {queue: self._queues.stored(queue) for queue in document.queues}
        return tuple(self._declare(queue, before[queue], document) for queue in document.queues)

    def get(self, queue: str) -> dict[str, Any]:
        """The layers of a queue and the settings that they come to. Raises QueueNotFound."""
        stored = self._queues.stored(queue)
        if stored is None:
            raise unknown_queue(queue, self._queues.all())
        return {
            "queue": queue,
            "revision": stored.revision,
            "declared": stored.declared,
            "file_defaults": stored.file_defaults,
            "override": _override(stored, stored.override, self._clock.now()),
            "paused": stored.paused_at is not None,
            "paused_at": _time(stored.paused_at),
            "shards_ever": stored.shards_ever,
            "effective": stored.settings(self._clock.now()).to_plain(),
        }

    def list(self) -> dict[str, Any]:
        """Every queue that can be read, by name, with what tells them apart."""
        queues = self._queues.all()
        return {"items": [_summary(queues[name]) for name in sorted(queues)], "next_cursor": None}

    def stats(self, queue: str) -> dict[str, Any]:
        """How many tasks of a queue wait, run and are dead, and for how long the oldest has been due.

        `oldest_pending_age_seconds` is 0 while nothing is due yet, None while nothing waits. Raises QueueNotFound.
        """
        settings = self._queues.settings(queue)
        counts = self._store.counts(queue)
        return {
            "queue": queue,
            "pending": counts.pending,
            "in_flight": counts.in_flight,
            "dead": counts.dead,
            "oldest_due_at": _time(counts.oldest_due_at),
            "oldest_pending_age_seconds": _age(counts.oldest_due_at, self._clock.now()),
            "paused": settings.paused,
            "exact": counts.exact,
        }

    def _declare(self, queue: str, before: StoredQueue | None, document: Document) -> Applied:
        seen = 0 if before is None else before.revision
        try:
            after = self._queues.put_declared(queue, document.queues[queue], document.defaults, expected_revision=seen)
        except ConfigConflict as conflict:
            present = self._queues.stored(queue)
            revision = 0 if present is None else present.revision
            return Applied(queue=queue, result=Change.CONFLICT, revision=revision, error=conflict)
        return Applied(
            queue=queue,
            result=_change(seen, after.revision),
            revision=after.revision,
            is_override_suspended=after.is_override_suspended(),
        )


def _change(seen: int, revision: int) -> Change:
    if revision == seen:
        return Change.UNCHANGED
    return Change.CHANGED if seen else Change.CREATED


def _override(stored: StoredQueue, override: Override | None, now: datetime) -> Mapping[str, Any] | None:
    if override is None:
        return None
    return {
        "revision": stored.override_revision,
        "layer": override.layer,
        "reason": override.reason,
        "expires_at": _time(override.expires_at),
        "in_force": not override.is_over(now) and not stored.is_override_suspended(),
    }


def _summary(settings: QueueSettings) -> dict[str, Any]:
    return {
        "queue": settings.queue,
        "owner": settings.owner,
        "runbook": settings.runbook,
        "revision": settings.revision,
        "paused": settings.paused,
        "host": str(settings.host),
        "max_attempts": settings.retry.max_attempts,
        "index_shards": settings.index_shards,
    }


def _age(oldest_due_at: datetime | None, now: datetime) -> float | None:
    return None if oldest_due_at is None else max((now - oldest_due_at).total_seconds(), 0.0)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)
