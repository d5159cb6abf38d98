"""Every error that rdq raises on purpose, each with a stable code.

    RdqError(code)
    ├── InputInvalid      a value given by the caller is refused; nothing was stored
    ├── OutputInvalid     a stored result does not fit the definition that reads it
    ├── TaskNotFound      no task has this id (or it is another definition's)
    ├── QueueNotFound     no queue of this name is configured
    ├── TaskConflict      the task exists, in a state that forbids the request
    ├── LeaseLost         the claim is no longer ours; nothing was changed
    ├── StaleCursor       the page cursor was altered, or belongs to another query
    ├── StoreFailed       storage did not answer; see `may_have_happened`
    ├── Unavailable       no store or runtime is reachable from here
    ├── CorruptItem       a stored item cannot be read; it is left as it is
    ├── ConfigInvalid     queue configuration is refused; nothing was stored
    ├── ConfigConflict    the configuration was written by another caller since it was read
    └── NotRegistered     no handler or definition has this name here

`Abort`, `Retryable` and `RetryAfter`, which a handler raises, are signals and not errors: see
`rdq_core.domain.outcome`. Messages name fields, ids, sizes and limits, never a payload or a
header's value.
"""

from typing import Any, ClassVar


class RdqError(Exception):
    """The root of rdq's errors.

    `code` is stable across releases and safe to branch on; the message is for people and may
    change. `hint` says what to do next, or is None; tracebacks show it too.
    """

    default_code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        task_id: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.task_id = task_id
        self.hint = hint
        if hint:
            self.add_note(hint)

    def as_dict(self) -> dict[str, Any]:
        """The error as the command line and the ops function print it: code, message, id, hint."""
        return {"code": self.code, "message": self.message, "id": self.task_id, "hint": self.hint}


class InputInvalid(RdqError):
    """A value given by the caller is refused, before anything was written.

    `field` names the value. Correct it: repeating the call unchanged gives the same error.
    """

    default_code = "task_input_invalid"

    def __init__(
        self, field: str, problem: str, *, hint: str | None = None, task_id: str | None = None
    ) -> None:
        super().__init__(f"{field}: {problem}", hint=hint, task_id=task_id)
        self.field = field
        self.problem = problem


class OutputInvalid(RdqError):
    """A stored result does not fit the definition that reads it. The stored result is unchanged."""

    default_code = "task_output_invalid"


class TaskNotFound(RdqError):
    """No task has this id: it never existed, was purged or forgotten, or its retention ended."""

    default_code = "task_not_found"


class QueueNotFound(RdqError):
    """No queue of this name is configured. Apply its configuration first: there is no default
    queue.
    """

    default_code = "queue_not_found"


class TaskConflict(RdqError):
    """The task exists in a state, or in another queue, that forbids the request. Nothing was
    changed.
    """

    default_code = "task_conflict"


class LeaseLost(RdqError):
    """The claim of a write is no longer the task's, and nothing was changed.

    The task was reclaimed, cancelled, purged or already settled. Stop the work: its outcome no
    longer counts.
    """

    default_code = "task_lease_lost"


class StaleCursor(RdqError):
    """The page cursor was altered, or belongs to another query. Start again without a cursor."""

    default_code = "stale_cursor"


class StoreFailed(RdqError):
    """Storage refused or did not answer, after every retry.

    `may_have_happened` is False when the write certainly did not take place, True when its answer
    was lost. Repeating the call is safe in both cases.
    """

    default_code = "task_store_failed"

    def __init__(
        self,
        message: str,
        *,
        may_have_happened: bool,
        task_id: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, task_id=task_id, hint=hint)
        self.may_have_happened = may_have_happened


class Unavailable(RdqError):
    """No store or runtime is reachable: a setting, table, permission or network is missing."""

    default_code = "task_unavailable"


class CorruptItem(RdqError):
    """A stored item cannot be read: it was edited by hand, or written by a newer version. It is
    left as it is.
    """

    default_code = "task_store_failed"


class ConfigInvalid(RdqError):
    """Queue configuration is refused, and nothing was stored. `path` names the key, such as
    `queues.billing.retry.jitter`.
    """

    default_code = "config_invalid"

    def __init__(self, path: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = path
        self.problem = problem


class ConfigConflict(RdqError):
    """Another caller has written the configuration since it was read. Read it again and decide."""

    default_code = "config_conflict"


class NotRegistered(RdqError):
    """No handler or definition of this name is registered in this process."""

    default_code = "task_not_registered"
