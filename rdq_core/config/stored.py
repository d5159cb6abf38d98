"""A queue's configuration as it is stored: its layers, who wrote them when, and what no deploy may
undo.

Each layer has a revision of its own, from 1 on. The invariant: a layer only changes under the
revision that its writer has read, what nobody meant to change stays, and `shards_ever` never goes
down.
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
_MOST_TOLD: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What people set on top of what is declared: why, and until when. `expires_at` None means
    until they undo it.
    """

    layer: Mapping[str, Any]
    reason: str
    expires_at: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        """Whether its time has run out."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQueue:
    """One queue's layers. `revision` counts writes of the declared layer, `override_revision` those
    of the override.

    `file_defaults` are those of the file that declared the queue. `paused_at` is None unless the
    queue is paused. `shards_ever` is the most `index_shards` that any layer has asked for.

    `deleting_at` is when the queue began to refuse submits, None for one that takes them.
    `deleted_at` is when it was found empty for good: what is left is a tombstone, which keeps its
    layers for a task that turns up after all. `looked_at` is when somebody last looked for tasks in
    what is on its way out.

    `owners` are the resources of templates that declare the queue, the first of which has made it;
    empty for one that people have made, which no template deletes.
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
        """What is in force now. An override that doesn't get along with what is declared is
        suspended: it is left out.

        `definition` is the layer of a typed task's own options, below what is declared. Raises
        ConfigInvalid when what is declared makes no sense by itself, or not with the definition.
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
    """The queue after a deploy; `before` itself when it says so already. One that was on its way
    out is back.

    Revisions go on where a deleted queue's ended, and its override and pause are gone; whoever
    declares it anew may know it as new, that is at revision 0.

    Raises ConfigConflict when the declared layer isn't at `expected_revision`, and ConfigInvalid
    when the new one makes no sense by itself.
    """
    present = before or StoredQueue(queue=queue)
    if present.has_declared(declared, file_defaults) and not present.is_leaving:
        return present
    if not (present.is_deleted and expected_revision == 0):
        theirs = {**present.declared, "defaults": present.file_defaults}
        _require(
            queue,
            "declared",
            present.revision,
            expected_revision,
            theirs,
            {**declared, "defaults": file_defaults},
        )
    shards = effective(queue, declared, file_defaults).index_shards
    kept = _forgotten(present) if present.is_deleted else present
    return _counted(
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
    """The queue with other owners: a version of its own, so that of two who add themselves neither
    is lost.
    """
    return (
        before
        if owners == before.owners
        else replace(before, owners=owners, revision=before.revision + 1)
    )


def _forgotten(deleted: StoredQueue) -> StoredQueue:
    """Without what people had set on the queue that was deleted: it says nothing about the one that
    is made anew.
    """
    revision = deleted.override_revision + (deleted.override is not None)
    return replace(
        deleted, override=None, override_revision=revision, paused_at=None, pause_reason=None
    )


def overridden(
    before: StoredQueue, override: Override | None, *, expected_revision: int
) -> StoredQueue:
    """The queue under another override; None takes it away.

    Raises ConfigConflict when the override isn't at `expected_revision`, and ConfigInvalid when it
    contradicts what is declared, or when that makes no sense by itself: what is left when the
    override ends must be valid too.
    """
    if override == before.override:
        return before
    layer: Mapping[str, Any] = override.layer if override else {}
    theirs = before.override.layer if before.override else {}
    _require(before.queue, "override", before.override_revision, expected_revision, theirs, layer)
    effective(before.queue, before.declared, before.file_defaults)
    shards = effective(before.queue, before.declared, before.file_defaults, layer).index_shards
    return _counted(
        replace(before, override=override, override_revision=before.override_revision + 1), shards
    )


def deleted_queue(tombstone: StoredQueue) -> QueueNotFound:
    """The refusal of a queue of which only a tombstone is left."""
    when = format_time(tombstone.deleted_at) if tombstone.deleted_at else "?"
    return QueueNotFound(
        f"queue {tombstone.queue!r} was deleted at {when}",
        hint="to have it back, apply it: rdq queue apply FILE",
    )


def leaving_queue(queue: str) -> QueueNotFound:
    """The refusal of a submit to a queue that is being deleted."""
    return QueueNotFound(
        f"queue {queue!r} is being deleted and takes no new tasks",
        hint="to keep it, apply its configuration again: rdq queue apply FILE",
    )


def unknown_queue(queue: str, known: Iterable[str]) -> QueueNotFound:
    """The refusal of a queue that isn't configured, with the nearest one that is."""
    hint = did_you_mean(queue, known) or "apply its configuration first: rdq queue apply FILE"
    return QueueNotFound(f"queue {queue[:MAX_NAME_BYTES]!r} is not configured", hint=hint)


def _counted(queue: StoredQueue, shards: int) -> StoredQueue:
    return replace(queue, shards_ever=max(queue.shards_ever, shards))


def _require(
    queue: str,
    layer: str,
    present: int,
    expected: int,
    theirs: Mapping[str, Any],
    yours: Mapping[str, Any],
) -> None:
    if present != expected:
        raise ConfigConflict(
            f"queue {queue}: the {layer} configuration is at revision {present}, and you have read revision {expected}",
            hint=f"{_told(theirs, yours)}{_READ_AGAIN}",
        )


def _told(theirs: Mapping[str, Any], yours: Mapping[str, Any]) -> str:
    """Both versions, key by key."""
    told = [
        f"{key} is {'unset' if there is None else shown(there)}, yours {'unset' if here is None else shown(here)}"
        for key, (there, here) in changes(theirs, yours).items()
    ]
    more = f" and {len(told) - _MOST_TOLD} more keys" if len(told) > _MOST_TOLD else ""
    return f"{', '.join(told[:_MOST_TOLD])}{more}; " if told else ""
