"""What is kept of each queue: its configuration, its rate limit's bucket, and whether a sweep of it
is awake.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from rdq_core.config.settings import QueueSettings, RateLimit
from rdq_core.config.stored import Override, StoredQueue


class QueueSource(Protocol):
    """The queues' configuration as it is in force. A deleted queue counts as not configured."""

    def settings(self, queue: str, *, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """The settings of a queue, at most one second old for sweeps. QueueNotFound when it isn't
        configured.

        `definition` has the options that a typed task was defined with, as a layer: they stand
        below what is declared and above the defaults of its file. ConfigInvalid when they don't get
        along with what is declared.
        """
        ...

    def for_submits(self, queue: str) -> QueueSettings:
        """The settings of a queue, at most one minute old. Raises as `settings` does.

        What would refuse a submit, a queue that is unknown or being deleted, is never said from
        memory.
        """
        ...

    def all(self) -> Mapping[str, QueueSettings]:
        """Every configured queue, those being deleted included."""
        ...


class QueueStore(QueueSource, Protocol):
    """Where the queues' configuration is kept, layer by layer, each write under the revision that
    its writer has read.

    A layer that says already what is written keeps its revision, so every write is safe to repeat.
    Queues that a write doesn't name are never touched.

        declared ── begin_delete ──► deleting ── end_delete ──► tombstone ── reopen ──► deleting
            ▲                            │                          │
            └──────── put_declared ──────┴──────────────────────────┘
    """

    def stored(self, queue: str) -> StoredQueue | None:
        """The layers of a queue, or its tombstone, read consistently; None when there is neither.
        CorruptItem when unreadable.
        """
        ...

    def all_stored(self) -> Mapping[str, StoredQueue]:
        """The layers of every queue that can be read, as old as `settings`; tombstones too."""
        ...

    def put_declared(
        self,
        queue: str,
        declared: Mapping[str, Any],
        file_defaults: Mapping[str, Any],
        *,
        expected_revision: int,
    ) -> StoredQueue:
        """Replace what is declared; override, pause and `shards_ever` survive. A new queue is at
        revision 0.

        A queue that is being deleted stays after all; of a deleted one only `shards_ever` and the
        revisions go on. Raises ConfigConflict, showing both versions, when somebody has written the
        layer since it was read, InputInvalid for a name that no queue can have, and ConfigInvalid
        for layers that contradict each other.
        """
        ...

    def put_owners(self, seen: StoredQueue, owners: tuple[str, ...]) -> bool:
        """Say which resources of templates declare a queue; False, and nothing changed, when it
        isn't as seen.
        """
        ...

    def put_override(
        self, queue: str, override: Override | None, *, expected_revision: int
    ) -> StoredQueue:
        """Replace what people have set, None for nothing. Raises as `put_declared` does, and
        QueueNotFound.
        """
        ...

    def pause(
        self, queue: str, *, paused: bool, now: datetime, reason: str | None = None
    ) -> StoredQueue:
        """Stop the queue's claims, or let them go on. Raises QueueNotFound."""
        ...

    def begin_delete(self, queue: str, *, now: datetime) -> StoredQueue:
        """Refuse submits from now on. A queue that is being deleted stays as it is. Raises
        QueueNotFound.
        """
        ...

    def note_look(self, seen: StoredQueue, *, now: datetime) -> bool:
        """Be the one who looks for tasks in a queue that is leaving. False when somebody else has
        looked since.
        """
        ...

    def end_delete(self, seen: StoredQueue, *, now: datetime) -> bool:
        """Leave a tombstone of a queue that was being deleted when it was seen. False when it isn't
        any more.
        """
        ...

    def reopen(self, seen: StoredQueue, *, now: datetime) -> bool:
        """Make a queue that is being deleted, from now on, of the tombstone seen. False when it has
        changed.
        """
        ...


class RateLimiter(Protocol):
    """A limit that all sweepers of a queue share."""

    def take(self, queue: str, wanted: int, limit: RateLimit, *, now: datetime) -> int:
        """How many of `wanted` starts are allowed now: 0 to `wanted`. They are spent."""
        ...


class Reservations(Protocol):
    """Which queues have a sweep that looks at every shard at least each second, so that nobody
    needs to start one.
    """

    def extend(self, queue: str, *, until: datetime) -> None:
        """Say that a sweep looks at the queue until then. Never shortens what another one has said."""
        ...

    def release(self, queue: str) -> None:
        """Say that no sweep does: one that is awake all the same says so again within a second."""
        ...

    def acquire(self, queue: str, *, now: datetime, until: datetime) -> bool:
        """Be the one who starts a sweep: False when one is awake, or somebody has just started one."""
        ...
