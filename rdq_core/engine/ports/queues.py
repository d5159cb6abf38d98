"""Storage per queue: configuration, the rate limit's bucket, and reservations of sweeps."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from rdq_core.config.settings import QueueSettings, RateLimit
from rdq_core.config.stored import Override, StoredQueue


class QueueSource(Protocol):
    """The effective configuration of queues. A deleted queue counts as not configured."""

    def settings(self, queue: str, *, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """The settings of a queue, at most one second old for sweeps. Raises QueueNotFound when it
        isn't configured.

        `definition` has the options of a typed task, as a layer below what is declared and above
        its file's defaults. Raises ConfigInvalid when they contradict what is declared.
        """
        ...

    def for_submits(self, queue: str) -> QueueSettings:
        """The settings of a queue, at most one minute old. Raises as `settings` does.

        An unknown or deleted queue, which refuses a submit, is never reported from a cache.
        """
        ...

    def all(self) -> Mapping[str, QueueSettings]:
        """Every configured queue, those being deleted included."""
        ...


class QueueStore(QueueSource, Protocol):
    """Where the configuration of queues is stored, layer by layer. Each write needs the revision
    that its writer has read.

    Writing what a layer already says keeps its revision, so every write is safe to repeat. Queues
    that a write doesn't name are never touched.

        declared ── begin_delete ──► deleting ── end_delete ──► tombstone ── reopen ──► deleting
            ▲                            │                          │
            └──────── put_declared ──────┴──────────────────────────┘
    """

    def stored(self, queue: str) -> StoredQueue | None:
        """The layers of a queue, or its tombstone, read consistently; None when there is neither.
        Raises CorruptItem when it can't be read.
        """
        ...

    def all_stored(self) -> Mapping[str, StoredQueue]:
        """The layers of every readable queue, tombstones included, at most as old as `settings`."""
        ...

    def put_declared(
        self,
        queue: str,
        declared: Mapping[str, Any],
        file_defaults: Mapping[str, Any],
        *,
        expected_revision: int,
    ) -> StoredQueue:
        """Replace what is declared; override, pause and `shards_ever` stay. A new queue's expected
        revision is 0.

        This ends a deletion that is under way; of a deleted queue only `shards_ever` and the
        revisions are carried on. Raises ConfigConflict, showing both versions, when another writer
        has changed the layer since it was read; InputInvalid for a name that no queue can have; and
        ConfigInvalid for layers that contradict each other.
        """
        ...

    def put_owners(self, seen: StoredQueue, owners: tuple[str, ...]) -> bool:
        """Record which template resources declare a queue. False, and nothing is changed, when the
        queue is not as `seen`.
        """
        ...

    def put_override(
        self, queue: str, override: Override | None, *, expected_revision: int
    ) -> StoredQueue:
        """Replace the operators' override, None for none. Raises as `put_declared` does, and
        QueueNotFound.
        """
        ...

    def pause(
        self, queue: str, *, paused: bool, now: datetime, reason: str | None = None
    ) -> StoredQueue:
        """Stop or resume the queue's claims. Raises QueueNotFound."""
        ...

    def begin_delete(self, queue: str, *, now: datetime) -> StoredQueue:
        """Refuse submits from now on. A queue that is being deleted stays as it is. Raises
        QueueNotFound.
        """
        ...

    def note_look(self, seen: StoredQueue, *, now: datetime) -> bool:
        """Record that the caller looks for tasks in a leaving queue. False when another host has
        looked since it was `seen`.
        """
        ...

    def end_delete(self, seen: StoredQueue, *, now: datetime) -> bool:
        """Replace a queue that is being deleted by a tombstone. False when it has changed since it
        was `seen`.
        """
        ...

    def reopen(self, seen: StoredQueue, *, now: datetime) -> bool:
        """Turn a tombstone into a queue that is being deleted, from now on. False when it has
        changed since it was `seen`.
        """
        ...


class RateLimiter(Protocol):
    """A limit that all sweepers of a queue share."""

    def take(self, queue: str, wanted: int, limit: RateLimit, *, now: datetime) -> int:
        """Spend and return up to `wanted` starts that are allowed now; 0 when none is."""
        ...


class Reservations(Protocol):
    """Names held until a time: queues for which a sweep is announced or about to start, helpers,
    successors. While a queue is reserved, a sweep looks at its every shard at least each second.
    """

    def extend(self, queue: str, *, until: datetime) -> None:
        """Hold the reservation until then. Never shortens it. Raises StoreFailed."""
        ...

    def release(self, queue: str) -> None:
        """End the reservation. Another sweep that holds it extends it again within a second."""
        ...

    def acquire(self, queue: str, *, now: datetime, until: datetime) -> bool:
        """Reserve the name until then, unless it is reserved. Of several callers one gets True."""
        ...
