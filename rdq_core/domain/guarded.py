"""What a guarded call answers: its value, or the id of the task that will make the call instead."""

from dataclasses import dataclass
from typing import Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Done(Generic[R_co]):
    """The call was made, and this is what it returned."""

    value: R_co


@dataclass(frozen=True, slots=True)
class Deferred:
    """The call failed and is now a task: it will be made until it has succeeded, or rests in the
    DLQ.

    The work is NOT done. Answer accordingly, and look at `id` for what became of it.
    """

    id: str
