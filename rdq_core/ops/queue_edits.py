"""Changes of queues by deploys and operators: apply a file, set an override, pause, resume, delete.

The invariant: a file is checked whole before the first of its queues is written, queues that it
does not name stay as they are, and each write is on the audit log before it is made.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.config.document import Document, assign
from rdq_core.config.merge import changes
from rdq_core.config.stored import Override, StoredQueue, overridden
from rdq_core.domain import limits
from rdq_core.engine.auditor import MAX_REASON_BYTES, Auditor
from rdq_core.engine.removal import REFUSES_FOR
from rdq_core.errors import ConfigConflict, InputInvalid, RdqError
from rdq_core.ops.parts import OperatorParts
from rdq_core.ops.queues import (
    Change,
    Difference,
    checked,
    difference,
    existing,
    override_view,
    time_view,
)

FOR_EVER: Final = timedelta.max
"""The value of `lasts` for an override without an end."""

_ATTEMPTS: Final = 5
_MOST_RECORDED: Final = 50
_LONGEST_RECORDED: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result for one queue of a file.

    `revision` is the declared layer's after the change. `error` is set for a conflict.
    """

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


class QueueEditor:
    """Changes queues for the principal of the `auditor`."""

    def __init__(self, parts: OperatorParts, auditor: Auditor) -> None:
        self._queues = parts.queues
        self._store = parts.store
        self._auditor = auditor
        self._removals = parts.removals(auditor)
        self._clock = parts.clock
        self._sleeper = parts.idle

    # -- declared ----------------------------------------------------------------------------------

    def apply(self, document: Document) -> tuple[Applied, ...]:
        """Declare the queues of a file, in its order. Applying it again changes nothing.

        A stored queue that can't be read raises CorruptItem before anything is written. A queue
        that another writer changes meanwhile is reported as a conflict; the others are applied.
        """
        before = {queue: self._queues.stored(queue) for queue in checked(document).queues}
        differences = [difference(stored, queue, document) for queue, stored in before.items()]
        return tuple(self._declare(each, before[each.queue], document) for each in differences)

    def _declare(
        self, wanted: Difference, before: StoredQueue | None, document: Document
    ) -> Applied:
        queue, seen = wanted.queue, 0 if before is None else before.revision
        if wanted.result is Change.UNCHANGED:
            return Applied(
                queue=queue,
                result=wanted.result,
                revision=seen,
                is_override_suspended=wanted.is_override_suspended,
            )
        declared, defaults = document.queues[queue], document.defaults
        recorded = {"result": str(wanted.result), **_recorded_changes(wanted.changes)}
        try:
            with self._auditor.recorded("queue.apply", queue, detail=recorded) as result:
                after = self._queues.put_declared(queue, declared, defaults, expected_revision=seen)
                suspended = after.is_override_suspended()
                result |= {"revision": after.revision, "override_suspended": suspended}
        except ConfigConflict as conflict:
            present = self._queues.stored(queue)
            revision = 0 if present is None else present.revision
            return Applied(queue=queue, result=Change.CONFLICT, revision=revision, error=conflict)
        return Applied(
            queue=queue,
            result=wanted.result,
            revision=after.revision,
            is_override_suspended=suspended,
        )

    def own(self, queue: str, owner: str, *, is_new: bool) -> None:
        """Record that a template's resource declares the queue.

        A queue that an operator created gets no owner. Raises ConfigConflict when other writers
        win every time.
        """
        for _ in range(_ATTEMPTS):
            stored = existing(self._queues, queue)
            others = tuple(each for each in stored.owners if each != owner and not is_new)
            owners = (*others, owner) if is_new or stored.owners else ()
            if self._queues.put_owners(
                stored, owners if set(owners) != set(stored.owners) else stored.owners
            ):
                return
        raise _always_conflicting(queue)

    def disown(self, queue: str, owner: str) -> bool:
        """Record that a resource no longer declares the queue.

        True when it is the last owner, which stays recorded until the queue is deleted. Raises as
        `own` does.
        """
        for _ in range(_ATTEMPTS):
            stored = existing(self._queues, queue)
            if owner not in stored.owners or stored.owners == (owner,):
                return owner in stored.owners
            if self._queues.put_owners(
                stored, tuple(each for each in stored.owners if each != owner)
            ):
                return False
        raise _always_conflicting(queue)

    # -- override ----------------------------------------------------------------------------------

    def set(
        self, queue: str, assignments: Sequence[str], *, reason: str, lasts: timedelta | None = None
    ) -> dict[str, Any]:
        """Put KEY=VALUE into the queue's override; an empty value removes a key, other keys stay.

        A queue has one override, with the reason given last. It ends after `lasts`; without
        `lasts`, its end stays as it was. Raises QueueNotFound, ConfigInvalid, and ConfigConflict
        when another operator sets it at the same time.
        """
        _check_reason(reason)
        if not assignments:
            raise InputInvalid(
                "set", "nothing to set; give KEY=VALUE, such as retry.max_attempts=8"
            )
        before, now = existing(self._queues, queue), self._clock.now()
        present = (
            None if before.override is None or before.override.is_over(now) else before.override
        )
        layer = assign(present.layer if present else {}, assignments)
        ends_at = _ends_at(now, lasts, present)
        return self._override(
            before,
            Override(layer=layer, reason=reason, expires_at=ends_at) if layer else None,
            reason,
        )

    def clear(self, queue: str, *, reason: str | None = None) -> dict[str, Any]:
        """Remove the override. Raises QueueNotFound, and ConfigConflict as `set` does."""
        return self._override(existing(self._queues, queue), None, reason)

    def _override(
        self, before: StoredQueue, override: Override | None, reason: str | None
    ) -> dict[str, Any]:
        seen, now = before.override_revision, self._clock.now()
        after = overridden(before, override, expected_revision=seen)
        old, new = before.settings(now).to_plain(), after.settings(now).to_plain()
        changed = changes(old, new)
        if after is not before:
            recorded = {
                "until": time_view(override.expires_at if override else None),
                **_recorded_changes(changed),
            }
            operation = "queue.clear" if override is None else "queue.set"
            with self._auditor.recorded(
                operation, before.queue, reason=reason, detail=recorded
            ) as result:
                after = self._queues.put_override(before.queue, override, expected_revision=seen)
                result["override_revision"] = after.override_revision
        return {
            "queue": before.queue,
            "changed": after is not before,
            "override": override_view(after, now),
            "changes": [
                {"key": key, "before": was, "after": is_} for key, (was, is_) in changed.items()
            ],
        }

    # -- pause -------------------------------------------------------------------------------------

    def pause(self, queue: str, *, reason: str | None = None) -> dict[str, Any]:
        """Stop claims and reclaims, not submits and cancels.

        Pausing a paused queue keeps its time. Raises QueueNotFound.
        """
        before = existing(self._queues, queue)
        if before.paused_at is not None and reason in (None, before.pause_reason):
            return _pause_view(before, changed=False)
        with self._auditor.recorded("queue.pause", queue, reason=reason):
            after = self._queues.pause(
                queue, paused=True, now=before.paused_at or self._clock.now(), reason=reason
            )
        return _pause_view(after, changed=True)

    def resume(self, queue: str) -> dict[str, Any]:
        """Allow claims again. Raises QueueNotFound."""
        before = existing(self._queues, queue)
        if before.paused_at is None:
            return _pause_view(before, changed=False)
        with self._auditor.recorded("queue.resume", queue):
            after = self._queues.pause(queue, paused=False, now=self._clock.now())
        return _pause_view(after, changed=True)

    # -- deletion ----------------------------------------------------------------------------------

    def delete(self, queue: str, *, reason: str | None = None) -> dict[str, Any]:
        """Begin a deletion: submits are refused from now on.

        Called again after six minutes, when the queue is empty, complete it; sweeps complete it
        too. The answer is the state of the deletion, also of one that is complete. Raises
        QueueNotFound.
        """
        stored = self._queues.stored(queue)
        if stored is None or not stored.is_leaving:
            stored = existing(self._queues, queue)
            with self._auditor.recorded("queue.delete", queue, reason=reason):
                stored = self._queues.begin_delete(queue, now=self._clock.now())
        elif not stored.is_deleted:
            self._removals.finish(stored, self._sleeper)
            stored = self._queues.stored(queue) or stored
        return self._deletion_view(stored)

    def _deletion_view(self, stored: StoredQueue) -> dict[str, Any]:
        counts = None if stored.is_deleted else self._store.counts(stored.queue)
        earliest = None if stored.deleting_at is None else stored.deleting_at + REFUSES_FOR
        return {
            "queue": stored.queue,
            "state": "deleted" if stored.is_deleted else "deleting",
            "deleting_at": time_view(stored.deleting_at),
            "deleted_at": time_view(stored.deleted_at),
            "deletable_at": None if stored.is_deleted else time_view(earliest),
            "paused": stored.paused_at is not None,
            "pending": counts.pending if counts else 0,
            "in_flight": counts.in_flight if counts else 0,
            "dead": counts.dead if counts else 0,
        }


def _always_conflicting(queue: str) -> ConfigConflict:
    return ConfigConflict(f"queue {queue} was changed by other writers each time", hint="try again")


def _check_reason(reason: str) -> None:
    limits.check_text("reason", reason, most=MAX_REASON_BYTES)


def _ends_at(now: datetime, lasts: timedelta | None, present: Override | None) -> datetime | None:
    if lasts is None:
        return present.expires_at if present else None
    if lasts == FOR_EVER:
        return None
    if not timedelta(seconds=1) <= lasts <= limits.RETENTION_RANGE[1]:
        raise InputInvalid("for", "must be from 1s to 365d, or never")
    return now + lasts


def _pause_view(stored: StoredQueue, *, changed: bool) -> dict[str, Any]:
    return {
        "queue": stored.queue,
        "paused": stored.paused_at is not None,
        "paused_at": time_view(stored.paused_at),
        "pause_reason": stored.pause_reason,
        "changed": changed,
    }


def _recorded_changes(changed: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Changes as an audit record has them: by key the old and the new value.

    Only the first 50 keys, and no long values: a record must fit into an item.
    """
    first = list(changed.items())[:_MOST_RECORDED]
    recorded: dict[str, Any] = {
        "changes": {key: [_short(old), _short(new)] for key, (old, new) in first}
    }
    more = len(changed) - len(first)
    return recorded | {"more_changes": more} if more else recorded


def _short(value: Any) -> Any:
    return value if len(json.dumps(value)) <= _LONGEST_RECORDED else "…"
