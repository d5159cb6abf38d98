"""A queue's configuration as it is stored: its layers, who wrote them when, and what no deploy may undo.

Each layer has a revision of its own, from 1 on. The invariant: a layer only changes under the revision that its writer
has read, what nobody meant to change stays, and `shards_ever` never goes down.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from rdq_core.config.effective import effective
from rdq_core.config.refusals import did_you_mean
from rdq_core.config.settings import QueueSettings
from rdq_core.errors import ConfigConflict, ConfigInvalid, QueueNotFound

_READ_AGAIN: Final = "read the queue's configuration again, compare, and apply what you want to keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What people set on top of what is declared: why, and until when. `expires_at` None means until they undo it."""

    layer: Mapping[str, Any]
    reason: str
    expires_at: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        """Whether its time has run out."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQueue:
    """One queue's layers. `revision` counts writes of the declared layer, `override_revision` those of the override.

    `file_defaults` are those of the file that declared the queue. `paused_at` is None unless the queue is paused.
    `shards_ever` is the most `index_shards` that any layer has asked for.
    """

    queue: str
    declared: Mapping[str, Any] = field(default_factory=dict)
    file_defaults: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 0
    override: Override | None = None
    override_revision: int = 0
    paused_at: datetime | None = None
    shards_ever: int = 0

    def settings(self, now: datetime, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        """What is in force now. An override that doesn't get along with what is declared is suspended: it is left out.

        `definition` is the layer of a typed task's own options, below what is declared. Raises ConfigInvalid when what
        is declared makes no sense by itself, or not with the definition.
        """
        override = self.override
        if override is not None and (override.is_over(now) or self.is_override_suspended()):
            override = None
        merged = self._merged(override.layer if override else None, definition)
        return replace(merged, revision=self.revision, paused=self.paused_at is not None, shards_ever=self.shards_ever)

    def is_override_suspended(self) -> bool:
        """Whether the override contradicts what was declared since."""
        try:
            self._merged(self.override.layer if self.override else None)
        except ConfigInvalid:
            return self.override is not None
        return False

    def has_declared(self, declared: Mapping[str, Any], file_defaults: Mapping[str, Any]) -> bool:
        """Whether exactly this is declared already."""
        return self.revision > 0 and self.declared == declared and self.file_defaults == file_defaults

    def _merged(self, override: Mapping[str, Any] | None, definition: Mapping[str, Any] | None = None) -> QueueSettings:
        return effective(self.queue, self.declared, self.file_defaults, override, definition)


def redeclared(
    before: StoredQueue | None,
    queue: str,
    declared: Mapping[str, Any],
    file_defaults: Mapping[str, Any],
    *,
    expected_revision: int,
) -> StoredQueue:
    """The queue after a deploy; `before` itself when it says so already.

    Raises ConfigConflict when the declared layer isn't at `expected_revision`, and ConfigInvalid when the new one makes
    no sense by itself.
    """
    present = before or StoredQueue(queue=queue)
    if present.has_declared(declared, file_defaults):
        return present
    _require(queue, "declared", present.revision, expected_revision)
    shards = effective(queue, declared, file_defaults).index_shards
    return _counted(
        replace(present, declared=declared, file_defaults=file_defaults, revision=present.revision + 1), shards
    )


def overridden(before: StoredQueue, override: Override | None, *, expected_revision: int) -> StoredQueue:
    """The queue under another override; None takes it away.

    Raises ConfigConflict when the override isn't at `expected_revision`, and ConfigInvalid when it contradicts what is
    declared.
    """
    if override == before.override:
        return before
    _require(before.queue, "override", before.override_revision, expected_revision)
    layer = override.layer if override else None
    shards = effective(before.queue, before.declared, before.file_defaults, layer).index_shards
    return _counted(replace(before, override=override, override_revision=before.override_revision + 1), shards)


def unknown_queue(queue: str, known: Iterable[str]) -> QueueNotFound:
    """The refusal of a queue that isn't configured, with the nearest one that is."""
    hint = did_you_mean(queue, known) or "apply its configuration first: rdq queue apply FILE"
    return QueueNotFound(f"queue {queue!r} is not configured", hint=hint)


def _counted(queue: StoredQueue, shards: int) -> StoredQueue:
    return replace(queue, shards_ever=max(queue.shards_ever, shards))


def _require(queue: str, layer: str, present: int, expected: int) -> None:
    if present != expected:
        raise ConfigConflict(
            f"queue {queue}: the {layer} configuration is at revision {present}, and you have read revision {expected}",
            hint=_READ_AGAIN,
        )
