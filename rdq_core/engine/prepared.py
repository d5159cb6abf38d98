"""A submit that becomes part of the application's own transaction: both are committed, or neither
is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from rdq_core.domain.task import Task

if TYPE_CHECKING:
    from rdq_core.engine.submit import Receipt

GOOD_FOR: Final = timedelta(minutes=5)
"""How long prepared items may be used: their times and their body's end were settled when they were
made.
"""


class Why(StrEnum):
    """Why a transaction with a prepared submit was not answered with success."""

    COMMITTED = "committed"
    """It was carried out, and only its answer was lost. Go on as after a success."""
    ALREADY_SUBMITTED = "already submitted"
    """The task is there already, by another submit; nothing was written. `receipt` names it."""
    CONFLICT = "conflict"
    """Another queue has a task of this id; nothing was written."""
    FORGOTTEN = "forgotten"
    """The task's target or requester was forgotten meanwhile; nothing was written. New business is
    prepared anew.
    """
    YOURS = "yours"
    """A condition of the application's own failed; nothing was written. `places` tells which."""
    PASSING = "passing"
    """Nothing stands against it: send the very same transaction again. It was not carried out so
    far.
    """
    OTHER = "other"
    """The error says all there is to say, such as a missing permission; nothing was written."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whose condition cancelled a transaction. `message` is for people.

    `receipt` is the stored task's, where there is one. `places` are the transaction's items,
    counted from 0, whose conditions failed and which are not rdq's.
    """

    why: Why
    message: str
    receipt: "Receipt | None" = None
    places: tuple[int, ...] = ()


class Prepared(Protocol):
    """A checked submit whose state row is not written yet.

    Its body is stored already, and goes by itself when the transaction is never committed.
    """

    @property
    def id(self) -> str:
        """The task's id."""
        ...

    @property
    def receipt(self) -> "Receipt":
        """What the submit answers once the transaction is committed."""
        ...

    @property
    def good_until(self) -> datetime:
        """From then on `items` and `plain_items` refuse: prepare again."""
        ...

    @property
    def items(self) -> Sequence[dict[str, Any]]:
        """Items for `TransactItems` of a low-level client. Raises InputInvalid when five minutes
        are over.
        """
        ...

    @property
    def plain_items(self) -> Sequence[dict[str, Any]]:
        """The same for `resource.meta.client`, which serialises plain values itself."""
        ...

    def explain(self, error: Exception) -> Explanation:
        """What an error of the transaction means: see Why. It may read the task's row to find out."""
        ...


@runtime_checkable
class TransactionalStore(Protocol):
    """A store whose rows can be written by the application's own transactions."""

    def prepare(self, task: Task, *, shards: int) -> Prepared:
        """Store what a new task's row will name, and make the items that write the row. Raises as a
        submit does.
        """
        ...
