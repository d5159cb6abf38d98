"""A submit as a part of the application's own transaction: both are committed, or neither."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from rdq_core.domain.task import Task

if TYPE_CHECKING:
    from rdq_core.engine.submit import Receipt

GOOD_FOR: Final = timedelta(minutes=5)
"""How long prepared items are valid: the task's times and its body's expiry are fixed when the
items are made.
"""


class Why(StrEnum):
    """Why a transaction with a prepared submit did not return success."""

    COMMITTED = "committed"
    """The transaction was committed and only its answer was lost. Continue as after a success."""
    ALREADY_SUBMITTED = "already submitted"
    """Another submit has stored the task; nothing was written. `receipt` names it."""
    CONFLICT = "conflict"
    """Another queue has a task with this id; nothing was written."""
    FORGOTTEN = "forgotten"
    """The task's target or requester has been forgotten since; nothing was written. For new
    business, prepare again.
    """
    YOURS = "yours"
    """A condition of the application failed; nothing was written. `positions` says which."""
    PASSING = "passing"
    """A passing failure; nothing was written so far. Send the same transaction again."""
    OTHER = "other"
    """Another failure, such as a missing permission; nothing was written. See the error itself."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a transaction failed, and whose condition it was. `message` is for people.

    `receipt` is the stored task's, None when there is none. `positions` says which of the
    application's items, counted from 0, have conditions that failed.
    """

    why: Why
    message: str
    receipt: "Receipt | None" = None
    positions: tuple[int, ...] = ()


class Prepared(Protocol):
    """A checked submit whose row the application's transaction writes.

    A body that doesn't fit into the row is stored already; TTL removes it if the transaction is
    never committed.
    """

    @property
    def id(self) -> str:
        """The task's id."""
        ...

    @property
    def receipt(self) -> "Receipt":
        """The submit's receipt, true once the transaction is committed."""
        ...

    @property
    def good_until(self) -> datetime:
        """From this moment `items` and `plain_items` raise InputInvalid: prepare again."""
        ...

    @property
    def items(self) -> Sequence[dict[str, Any]]:
        """Items for `TransactItems` of a low-level client. Raises InputInvalid from `good_until`
        on.
        """
        ...

    @property
    def plain_items(self) -> Sequence[dict[str, Any]]:
        """The same for `resource.meta.client`, which serialises plain values itself."""
        ...

    def explain(self, error: Exception) -> Explanation:
        """What an error of the transaction means; see Why. It may read the task's row."""
        ...


@runtime_checkable
class TransactionalStore(Protocol):
    """A store whose rows the application's own transactions can write."""

    def prepare(self, task: Task, *, shards: int) -> Prepared:
        """Store the body of a new task, and make the items that write its row. Raises as a submit
        does.
        """
        ...
