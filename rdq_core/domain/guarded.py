"""What a guarded call returns: its value, or the id of the task that makes the call instead."""

from dataclasses import dataclass
from typing import Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Done(Generic[R_co]):
    """The call was made and returned `value`."""

    value: R_co


@dataclass(frozen=True, slots=True)
class Deferred:
    """The call failed and is now the task `id`, which is tried until it succeeds or is dead.

    The work is NOT done: don't report success. Read the task to learn its outcome.
    """

    id: str
