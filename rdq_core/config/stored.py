"""A queue's configuration as it is stored: its layers, who wrote them when, and its state.

Each layer has a revision of its own, from 1 on. The invariant: a layer only changes under the
revision that its writer has read, a write changes nothing else, and `shards_ever` never decreases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from rdq_core.config.effective import effective
from rdq_core.config.merge import changes
from rdq_core.config.messages import did_you_mean, shown
from rdq_core.config.settings import QueueSettings
from rdq_core.domain.limits import MAX_NAME_BYTES
from rdq_core.domain.times import format_time
from rdq_core.errors import ConfigConflict, ConfigInvalid, QueueNotFound

_READ_AGAIN: Final = (
    "read the queue's configuration again, compare, and apply what you want to keep"
)
_MOST_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What an operator set over the declared layer, with the reason and the end.

    `expires_at` None means until it is cleared.
    """

    layer: Mapping[str, Any]
    reason: str
    expires_at: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQueue:
    """One queue's layers and state.

    `revision` counts writes of the declared layer, `override_revision` those of the override.
    `file_defaults` are those of the file that declared the queue. `paused_at` is None unless the
    queue is paused. `shards_ever` is the most `index_shards` that any layer has asked for.

    `deleting_at` is when the queue began to refuse submits, None while it takes them. `deleted_at`
    is when the deletion was completed. The item that stays is a tombstone, which keeps the layers
    in case a task is found in the queue later. `looked_at` is when a sweep last looked for such
    tasks.

    `owners` are the template resources that declare the queue; the first one created it. A queue
    without owners was created by an operator, and no template deletes it.
    """

    queue: str
    declared: Mapping[str, Any] = field(default_factory=dict)
    file_defaults: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 0
    override: Override | None = None
    override_revision: int = 0
    paused_at: datetime | None = None
    pause_reason: str | None = None
    shards_ever: int = 0
    deleting_at: datetime | None = None
    deleted_at: datetime | None = None
    looked_at: datetime | None = None
    owners: tuple[str, ...] = ()

    @property
    def is_leaving(self) -> bool:
        """Whether it is being deleted, or is deleted."""
        return self.deleting_at is not None or self.is_deleted

    @property
    def is_deleted(self) -> bool:
        """Whether only a tombstone is left, so that the queue counts as not configured."""
        return self.deleted_at is not None

    def settings(self, now: datetime, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """The settings in effect now.

        An override that contradicts what is declared is suspended: it is left out. `definition` is
        the layer of a typed task's own options, below what is declared. Raises ConfigInvalid when
        the declared layer is invalid, by itself or with the definition.
        """
        override = None if self.override is None or self.override.is_over(now) else self.override
        suspended = override is not None and self.is_override_suspended()
        merged = self._merged(override.layer if override and not suspended else None, definition)
        return replace(
            merged,
            revision=self.revision,
            paused=self.paused_at is not None,
            deleting=self.is_leaving,
            override_suspended=suspended,
            shards_ever=self.shards_ever,
        )

    def is_override_suspended(self) -> bool:
        """Whether the override contradicts what was declared since."""
        try:
            self._merged(self.override.layer if self.override else None)
        except ConfigInvalid:
            return self.override is not None
        return False

    def has_declared(self, declared: Mapping[str, Any], file_defaults: Mapping[str, Any]) -> bool:
        """Whether exactly this is declared already."""
        return (
            self.revision > 0 and self.declared == declared and self.file_defaults == file_defaults
        )

    def _merged(
        self, override: Mapping[str, Any] | None, definition: Mapping[str, Any] | None = None
    ) -> QueueSettings:
        return effective(self.queue, self.declared, self.file_defaults, override, definition)


def redeclared(
    before: StoredQueue | None,
    queue: str,
    declared: Mapping[str, Any],
    file_defaults: Mapping[str, Any],
    *,
    expected_revision: int,
) -> StoredQueue:
    """The queue after a deploy; `before` itself when it declares the same.

    A queue that was being deleted, or is deleted, is in use again. A deleted queue continues its
    revisions, without its override and its pause. Its writer may have read it as a new queue, at
    revision 0.

    Raises ConfigConflict when the declared layer isn't at `expected_revision`: read it again.
    Raises ConfigInvalid when the new layer is invalid by itself.
    """
    present = before or StoredQueue(queue=queue)
    if present.has_declared(declared, file_defaults) and not present.is_leaving:
        return present
    if not (present.is_deleted and expected_revision == 0):
        _require_revision(
            queue,
            "declared",
            (present.revision, {**present.declared, "defaults": present.file_defaults}),
            (expected_revision, {**declared, "defaults": file_defaults}),
        )
    shards = effective(queue, declared, file_defaults).index_shards
    kept = _without_override(present) if present.is_deleted else present
    return _with_shards(
        replace(
            kept,
            declared=declared,
            file_defaults=file_defaults,
            revision=present.revision + 1,
            deleting_at=None,
            deleted_at=None,
            looked_at=None,
            owners=() if present.is_leaving else present.owners,
        ),
        shards,
    )


def owned(before: StoredQueue, owners: tuple[str, ...]) -> StoredQueue:
    """The queue with other owners, at a new revision.

    When two templates add themselves at the same time, one gets a conflict and neither is lost.
    """
    return (
        before
        if owners == before.owners
        else replace(before, owners=owners, revision=before.revision + 1)
    )


def _without_override(deleted: StoredQueue) -> StoredQueue:
    """A deleted queue without its override and pause, which the restored queue doesn't keep."""
    revision = deleted.override_revision + (deleted.override is not None)
    return replace(
        deleted, override=None, override_revision=revision, paused_at=None, pause_reason=None
    )


def overridden(
    before: StoredQueue, override: Override | None, *, expected_revision: int
) -> StoredQueue:
    """The queue under another override; None removes it.

    Raises ConfigConflict when the override isn't at `expected_revision`: read it again. Raises
    ConfigInvalid when the override contradicts what is declared, or when the declared layer is
    invalid by itself, because it must be valid when the override ends.
    """
    if override == before.override:
        return before
    layer: Mapping[str, Any] = override.layer if override else {}
    stored = before.override.layer if before.override else {}
    _require_revision(
        before.queue, "override", (before.override_revision, stored), (expected_revision, layer)
    )
    effective(before.queue, before.declared, before.file_defaults)
    shards = effective(before.queue, before.declared, before.file_defaults, layer).index_shards
    return _with_shards(
        replace(before, override=override, override_revision=before.override_revision + 1), shards
    )


def deleted_queue(tombstone: StoredQueue) -> QueueNotFound:
    """The error for a deleted queue."""
    when = format_time(tombstone.deleted_at) if tombstone.deleted_at else "?"
    return QueueNotFound(
        f"queue {tombstone.queue!r} was deleted at {when}",
        hint="to have it back, apply it: rdq queue apply FILE",
    )


def leaving_queue(queue: str) -> QueueNotFound:
    """The error for a submit to a queue that is being deleted."""
    return QueueNotFound(
        f"queue {queue!r} is being deleted and takes no new tasks",
        hint="to keep it, apply its configuration again: rdq queue apply FILE",
    )


def unknown_queue(queue: str, known: Iterable[str]) -> QueueNotFound:
    """The error for a queue that isn't configured, with the nearest one that is."""
    hint = did_you_mean(queue, known) or "apply its configuration first: rdq queue apply FILE"
    return QueueNotFound(f"queue {queue[:MAX_NAME_BYTES]!r} is not configured", hint=hint)


def _with_shards(queue: StoredQueue, shards: int) -> StoredQueue:
    return replace(queue, shards_ever=max(queue.shards_ever, shards))


def _require_revision(
    queue: str,
    layer: str,
    stored: tuple[int, Mapping[str, Any]],
    yours: tuple[int, Mapping[str, Any]],
) -> None:
    """Raise ConfigConflict, showing both versions, unless the stored revision is the one read."""
    if stored[0] != yours[0]:
        raise ConfigConflict(
            f"queue {queue}: the {layer} configuration is at revision {stored[0]},"
            f" and you have read revision {yours[0]}",
            hint=f"{_differences(stored[1], yours[1])}{_READ_AGAIN}",
        )


def _differences(stored: Mapping[str, Any], yours: Mapping[str, Any]) -> str:
    """Both versions, key by key."""
    differences = [
        f"{key} is {_shown_or_unset(there)}, yours {_shown_or_unset(here)}"
        for key, (there, here) in changes(stored, yours).items()
    ]
    left_out = len(differences) - _MOST_SHOWN
    more = f" and {left_out} more keys" if left_out > 0 else ""
    return f"{', '.join(differences[:_MOST_SHOWN])}{more}; " if differences else ""


def _shown_or_unset(value: object) -> str:
    return "unset" if value is None else shown(value)
